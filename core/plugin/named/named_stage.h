// A strategy's stage whose exceptions carry the plugin's name.
#pragma once

#include <memory>

#include "core/plugin/guard.h"
#include "heddle/parallel/strategy.h"

namespace heddle::plugin {

// Costs one more virtual call for each call of the stage. A heddle::Error is passed on as it is; so are
// LibTorch's errors out of forward(), which mostly come from the units that the stage runs.
std::unique_ptr<ParallelStage> name_stage(const Author& author, std::unique_ptr<ParallelStage> stage);

}  // namespace heddle::plugin
