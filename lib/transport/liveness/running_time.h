// Time that does not count while this process was stopped or its machine was suspended.
#pragma once

#include <algorithm>
#include <chrono>

namespace heddle::mesh {

// Sums the time between calls of tick(), which come several times a second. A longer gap is a pause of the
// process (Ctrl-Z, a debugger, a suspended or swapping machine) and counts as kLongest.
class RunningTime {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kLongest{1000};

  Clock::duration tick(Clock::time_point now = Clock::now()) {
    sum_ += std::min<Clock::duration>(now - last_, kLongest);
    last_ = now;
    return sum_;
  }

 private:
  Clock::time_point last_ = Clock::now();
  Clock::duration sum_{};
};

}  // namespace heddle::mesh
