// Progress line of a run.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "lib/report/metrics.h"

namespace heddle {

// Returns "step 12/300  loss 3.1416  norm 1.20  lr 1.0e-03  12.3k tok/s  460.80 MiB  2m 10s left  router/load
// 1.02" in at most `columns` characters. Drops whole fields to fit: the model's own values first, from the
// last one, then the memory, and the step last.
std::string progress_line(const TrainingRecord& record, int64_t total_steps, double seconds_left,
                          size_t columns = 1000);

// Returns the width of a terminal in characters; 80 if unknown.
size_t terminal_columns(int file);

// Output of the progress line.
struct Screen {
  std::ostream& out;
  std::function<size_t()> columns = {};  // width of the terminal, which may change; empty: no terminal
  std::atomic<bool>& open_line;          // the last line is not terminated; a message terminates it first
};

// On a terminal, one line that is overwritten; elsewhere, a line about once per second and for the first and
// the last step.
class Progress {
 public:
  Progress(Screen screen, int64_t total_steps);

  void show(const TrainingRecord& record);
  // Shows the progress of a validation: on a terminal, a line that the next one replaces; elsewhere one per
  // second, none within the first second. `done` is 0 before the first sample.
  void validating(const std::string& set, int64_t done, int64_t samples);
  // Prints a permanent line.
  void note(const std::string& text);
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  Screen screen_;
  int64_t total_steps_;
  int64_t shown_ = 0;   // number of shown steps
  double seconds_ = 0;  // seconds of the steps after the first, which includes warmup
  Clock::time_point last_line_;
  bool passes_ = false;  // the open line is to be replaced
};

}  // namespace heddle
