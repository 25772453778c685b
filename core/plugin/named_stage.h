// A strategy's stage whose exceptions carry the plugin's name.
#pragma once

#include <memory>

#include "core/plugin/guard.h"
#include "heddle/parallel/strategy.h"

namespace heddle::plugin {

// Costs one more virtual call for each call of the stage. An Error of ours passes as it is, and out of
// forward() also LibTorch's errors: those are mostly of the units, which the stage only runs.
std::unique_ptr<ParallelStage> name_stage(const Author& author, std::unique_ptr<ParallelStage> stage);

}  // namespace heddle::plugin
