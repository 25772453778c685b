// From units to this rank's stages: parallelizers, then the strategy, then the values of the parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/parallel/plan.h"

namespace heddle {

using Stages = std::vector<std::unique_ptr<ParallelStage>>;

// Writes the values of one shard (its box of the whole parameter) into shard.tensor, and says whether it
// knows the parameter. Reads no more of the file than that box.
using ParameterSource = std::function<bool(const Shard& shard)>;

namespace parallel {

// Parameters on meta are filled from `source`, and where it is empty or says no, from their Init with `seed`.
HEDDLE_API Stages build(Units units, const Plan& plan, const DeviceMesh& mesh, const ParameterSource& source,
                        uint64_t seed);

// Fills a shard from its Init: a function of (seed, name, global index) and nothing else.
HEDDLE_API void initialise(const Shard& shard, uint64_t seed);

}  // namespace parallel
}  // namespace heddle
