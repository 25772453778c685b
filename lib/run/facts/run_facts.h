// What a run tells of itself: its header, its journal and its plan, as values of the modules that take them.
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

// "stopped by SIGTERM after step 7 of 12: saved DIRECTORY; ..."; info: of the last step, if there was one.
std::string stopped_text(const RunSpec& run, int signal, const std::optional<StepInfo>& info);

MetricsOwner metrics_owner(const RunSpec& run);
JournalOf journal_of(const RunSpec& run, ModelFlops flops);

// The peak of this rank: of --peak-flops, the section benchmark or mfu, or of the device.
PeakFlops peak_of(const RunSpec& run, const engine::Model& model);
// Operations of a token on this rank: its model, its sequences and its device. No gradients are computed of
// frozen parameters.
ModelFlops flops_of(const RunSpec& run, const engine::Model& model, const ModelSize& size);

// The same for a run whose data need not be here.
StepPlan step_plan(const Setup& setup, const PreparedModel& model, const Recipe& recipe,
                   const std::optional<RunPipeline>& pipeline);

}  // namespace heddle
