// Errors that stop a run with NaN or Inf: skipped updates, parameters or a loss.
#pragma once

#include <optional>
#include <string>

#include "heddle/base/error.h"
#include "heddle/engine/engine.h"
#include "lib/report/skipped_updates.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

// Returns Error{diverged}: max_skipped_updates consecutive updates up to `info` were skipped.
Error too_many_skipped(const RunSpec& run, const StepInfo& info);

// Returns Error{diverged}: nothing is saved after `info`, for the reason that why_not_saved() gives.
Error not_saved(const RunSpec& run, const StepInfo& info, const SkippedUpdates& skipped, bool ends);

// Throws on every rank if a parameter of any rank holds inf or nan, and names the parameter: Error{diverged}
// before the checkpoint of `info`, Error{input} without `info`, when the run has just read its parameters. A
// collective.
void refuse_not_finite(const RunSpec& run, engine::Model& model, const std::optional<StepInfo>& info);

}  // namespace heddle
