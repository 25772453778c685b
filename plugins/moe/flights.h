// Collectives in flight while the rank computes.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "heddle/mesh/communicator.h"

namespace heddle::moe {

// Waits for all started Works when the scope ends, also by an exception, because a Work must not be dropped.
class Flights {
 public:
  Flights() = default;
  Flights(const Flights&) = delete;
  Flights& operator=(const Flights&) = delete;
  ~Flights() {
    try {
      wait();
    } catch (...) {  // a rank is lost; the exception in flight says more
    }
  }
  void add(std::unique_ptr<Work> work) { works_.push_back(std::move(work)); }
  void wait() {
    while (!works_.empty()) {
      const std::unique_ptr<Work> work = std::move(works_.back());
      works_.pop_back();
      work->wait();
    }
  }

 private:
  std::vector<std::unique_ptr<Work>> works_;
};

}  // namespace heddle::moe
