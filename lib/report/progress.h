// The line that shows how a run is going.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "lib/report/metrics.h"

namespace heddle {

// "step 12/300  loss 3.1416  norm 1.20  lr 1.0e-03  12.3k tok/s  460.80 MiB  2m 10s left  router/load 1.02",
// in at most `columns` characters: whole fields are left out, the last of the model's own values first, then
// the memory, the step last.
std::string progress_line(const TrainingRecord& record, int64_t total_steps, double seconds_left,
                          size_t columns = 1000);

// The width of the terminal behind this file, in characters; 80 where it does not say.
size_t terminal_columns(int file);

// Where progress is shown.
struct Screen {
  std::ostream& out;
  std::function<size_t()> columns = {};  // of a terminal, which may change; empty: no terminal
  std::atomic<bool>& open_line;          // the last line has no end yet: a message ends it first
};

// On a terminal one line that is written over; elsewhere a line of its own about once a second, and for the
// first and the last step.
class Progress {
 public:
  Progress(Screen screen, int64_t total_steps);

  void show(const TrainingRecord& record);
  // Of a validation: a line that the next one replaces; elsewhere than on a terminal one a second, none
  // within the first. `done` is 0 before the first sample.
  void validating(const std::string& set, int64_t done, int64_t samples);
  // A line that stays.
  void note(const std::string& text);
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  Screen screen_;
  int64_t total_steps_;
  int64_t shown_ = 0;   // steps seen
  double seconds_ = 0;  // of the steps after the first, which warms up
  Clock::time_point last_line_;
  bool passes_ = false;  // the open line is replaced by a line that stays
};

}  // namespace heddle
