// What a person is told before the first step (the model, the batch, the run, the memory), and of a run that
// was stopped.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/cost/model_size.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

std::string banner(const RunSpec& run, const ModelSize& size);

// "stopped by SIGTERM after step 7 of 12: saved DIRECTORY; ..."; info: of the last step, if there was one.
std::string stopped_text(const RunSpec& run, int signal, const std::optional<StepInfo>& info);

// What a person is warned of before the first step, without the word "warning".
std::vector<std::string> warnings(const RunSpec& run, const ModelSize& size, const engine::Model& model);

// The line of the device, or of a CPU's threads where they share cores.
std::string device_text(const engine::Model& model, int local_ranks);

}  // namespace heddle
