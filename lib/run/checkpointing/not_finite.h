// What ends a run whose numbers are not finite: too many skipped updates, parameters or a loss.
#pragma once

#include <optional>
#include <string>

#include "heddle/base/error.h"
#include "heddle/engine/engine.h"
#include "lib/report/skipped_updates.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

// Error{diverged}: the update of `info` was skipped, and so were those before it, up to the limit.
Error too_many_skipped(const RunSpec& run, const StepInfo& info);

// Error{diverged}: nothing is saved after `info`, for the reason of why_not_saved().
Error not_saved(const RunSpec& run, const StepInfo& info, const SkippedUpdates& skipped, bool ends);

// Throws on every rank where a parameter on any of them holds inf or nan, and names it: Error{diverged}
// before the checkpoint after `info` is made, Error{input} where the run has just read its parameters (no
// info). A collective.
void refuse_not_finite(const RunSpec& run, engine::Model& model, const std::optional<StepInfo>& info);

}  // namespace heddle
