// Counts skipped updates of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace heddle {

// Counts updates that were skipped because the loss or the gradient norm was not finite
// (StepReport::skipped).
class SkippedUpdates {
 public:
  // most: consecutive skipped updates that stop the run; empty: no limit.
  explicit SkippedUpdates(std::optional<int64_t> most) : most_(most) {}
  void add(bool skipped, double loss);
  int64_t all() const { return all_; }            // in this process
  int64_t in_a_row() const { return in_a_row_; }  // up to the last step
  // `unknown`: earlier steps whose updates are not counted yet.
  bool may_end_with_the_next(int64_t unknown = 0) const { return most_ && in_a_row_ + unknown + 1 >= *most_; }
  std::string summary() const;  // line for the end of the run; "": no update was skipped
  // Returns why nothing is saved after the last step: its loss is not finite, or more updates were skipped
  // than made; if the run continues (not `ends`), also for equal numbers. "": no reason.
  std::string why_not_saved(bool ends) const;
  bool end_the_run() const { return most_ && in_a_row_ >= *most_; }

 private:
  std::optional<int64_t> most_;
  int64_t all_ = 0, in_a_row_ = 0, steps_ = 0;
  double loss_ = 0;  // of the last step
};

// Formats a loss; a nan has no sign.
std::string number_text(double value);

}  // namespace heddle
