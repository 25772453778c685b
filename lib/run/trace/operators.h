// LibTorch's profiler on this rank, for the operators in a trace.
#pragma once

#include <chrono>
#include <vector>

#include "lib/run/trace/rank_events.h"

namespace heddle {

// One at a time in a process. It sees this thread and the threads of autograd.
class OperatorProfile {
 public:
  void start();
  // What ran since start(), in the order of its beginnings.
  std::vector<RanOperator> stop();

 private:
  std::chrono::nanoseconds system_ahead_{};  // of the steady clock
};

}  // namespace heddle
