// Updates that a run has skipped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace heddle {

// Counts the updates that were skipped as the loss or the gradient norm was not finite (StepReport::skipped).
class SkippedUpdates {
 public:
  // most: so many in a row end the run; empty: none do.
  explicit SkippedUpdates(std::optional<int64_t> most) : most_(most) {}
  void add(bool skipped, double loss);
  int64_t all() const { return all_; }            // of this process
  int64_t in_a_row() const { return in_a_row_; }  // up to the last step
  // `unknown`: steps before the next one whose updates are not counted yet.
  bool may_end_with_the_next(int64_t unknown = 0) const { return most_ && in_a_row_ + unknown + 1 >= *most_; }
  std::string summary() const;  // a line for the end of the run; "": none were
  // Why nothing is to be saved after the last step: its loss is not finite, or more updates were skipped than
  // made; where the run goes on (not `ends`), also as many. "": nothing speaks against it.
  std::string why_not_saved(bool ends) const;
  bool end_the_run() const { return most_ && in_a_row_ >= *most_; }

 private:
  std::optional<int64_t> most_;
  int64_t all_ = 0, in_a_row_ = 0, steps_ = 0;
  double loss_ = 0;  // of the last step
};

// The loss as it is printed: a nan has no sign.
std::string number_text(double value);

}  // namespace heddle
