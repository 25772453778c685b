// Values of a run for its header, its journal, its FLOP count and its cost estimate.
#pragma once

#include <optional>
#include <string>

#include "lib/cost/mfu.h"
#include "lib/cost/rank_size.h"
#include "lib/report/header.h"
#include "lib/report/journal.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

RunHeader header_of(const RunSpec& run);

// Returns "stopped by SIGTERM after step 7 of 12: saved DIRECTORY; ...". info: the last step, if any.
std::string stopped_text(const RunSpec& run, int signal, const std::optional<StepInfo>& info);

MetricsOwner metrics_owner(const RunSpec& run);
JournalOf journal_of(const RunSpec& run, ModelFlops flops);

// Returns this rank's peak FLOP/s: from --peak-flops, the section benchmark or mfu, or the device.
PeakFlops peak_of(const RunSpec& run, const engine::Model& model);
// Returns the FLOPs per token on this rank, from its model, sequence lengths and device. Frozen parameters
// need no gradient FLOPs.
ModelFlops flops_of(const RunSpec& run, const engine::Model& model, const ModelSize& size);

// Returns the step plan of a run whose data may be missing on this machine.
StepPlan step_plan(const Setup& setup, const PreparedModel& model, const Recipe& recipe,
                   const std::optional<RunPipeline>& pipeline);

}  // namespace heddle
