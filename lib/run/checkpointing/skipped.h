// Updates that a run has skipped, and what ends it for that: too many of them, parameters or a loss that are
// not finite.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "heddle/base/error.h"
#include "heddle/engine/engine.h"
#include "lib/run/spec/run_spec.h"

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

// Error{diverged}: the update of `info` was skipped, and so were those before it, up to the limit.
Error too_many_skipped(const RunSpec& run, const StepInfo& info);

// Error{diverged}: nothing is saved after `info`, for the reason of why_not_saved().
Error not_saved(const RunSpec& run, const StepInfo& info, const SkippedUpdates& skipped, bool ends);

// Throws on every rank where a parameter on any of them holds inf or nan, and names it: Error{diverged}
// before the checkpoint after `info` is made, Error{input} where the run has just read its parameters (no
// info). A collective.
void refuse_not_finite(const RunSpec& run, engine::Model& model, const std::optional<StepInfo>& info);

}  // namespace heddle
