// The line that shows how a run is going.
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>

#include "trainer/loop/metrics.h"

namespace heddle {

// "step 12/300  loss 3.1416  norm 1.20  lr 1.0e-03  12.3k tok/s  0.45 GiB  2m 10s left"
std::string progress_line(const TrainingRecord& record, int64_t total_steps, double seconds_left);

// On a terminal one line that is written over; elsewhere a line of its own about once a second, and for the
// first and the last step.
class Progress {
 public:
  enum class Style { rewriting, lines };
  Progress(std::ostream& out, Style style, int64_t total_steps);

  void show(const TrainingRecord& record);
  // A line that stays.
  void note(const std::string& text);
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  std::ostream& out_;
  Style style_;
  int64_t total_steps_;
  int64_t shown_ = 0;   // steps seen
  double seconds_ = 0;  // of the steps after the first, which warms up
  Clock::time_point last_line_;
  bool open_ = false;  // a rewriting line stands without its end
};

}  // namespace heddle
