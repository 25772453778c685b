// A collective in flight while something else is computed.
#pragma once

#include <memory>
#include <utility>

#include "heddle/mesh/communicator.h"

namespace heddle::context {

// Waits also where an exception passes: a Work may not be dropped. The peers have started the same collective
// before they compute, so the wait ends.
class Flight {
 public:
  Flight() = default;
  explicit Flight(std::unique_ptr<Work> work) : work_(std::move(work)) {}
  Flight(Flight&&) = default;
  Flight& operator=(Flight&& other) {
    std::swap(work_, other.work_);  // a Work of this one ends with `other`
    return *this;
  }
  ~Flight() {
    try {
      wait();
    } catch (...) {  // a rank is lost, and the exception that passes says more
    }
  }
  void wait() {
    if (const std::unique_ptr<Work> work = std::exchange(work_, nullptr)) work->wait();
  }

 private:
  std::unique_ptr<Work> work_;
};

}  // namespace heddle::context
