// Collectives in flight while something else is computed.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "heddle/mesh/communicator.h"

namespace heddle::moe {

// Waits for what was started, also where an exception passes: a Work may not be dropped.
class Flights {
 public:
  Flights() = default;
  Flights(const Flights&) = delete;
  Flights& operator=(const Flights&) = delete;
  ~Flights() {
    try {
      wait();
    } catch (...) {  // a rank is lost, and the exception that passes says more
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
