// A collective in flight while the rank computes.
#pragma once

#include <memory>
#include <utility>

#include "heddle/mesh/communicator.h"

namespace heddle::context {

// Waits for a Work when the scope ends, also by an exception, because a Work must not be dropped. The wait
// ends: the peers post the same collective before they compute.
class Flight {
 public:
  Flight() = default;
  explicit Flight(std::unique_ptr<Work> work) : work_(std::move(work)) {}
  Flight(Flight&&) = default;
  Flight& operator=(Flight&& other) {
    std::swap(work_, other.work_);  // `other` then waits for the previous Work
    return *this;
  }
  ~Flight() {
    try {
      wait();
    } catch (...) {  // a rank is lost; the exception in flight says more
    }
  }
  void wait() {
    if (const std::unique_ptr<Work> work = std::exchange(work_, nullptr)) work->wait();
  }

 private:
  std::unique_ptr<Work> work_;
};

}  // namespace heddle::context
