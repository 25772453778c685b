// Builds this rank's stages from units: splits the model into stages, applies parallelizers and the strategy,
// and fills the parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/parallel/plan.h"
#include "heddle/parallel/stages.h"

namespace heddle {

namespace parallel {

// The split of a model into pipeline stages.
struct StageMap {
  std::vector<int> stage_of_unit;  // ascending
  std::vector<int> rank_of_stage;  // positions on the axis pp
};

// Assigns units to stages. Throws Error{config} if the pipeline's fields do not fit the model.
HEDDLE_API StageMap map_stages(const Units& units, const Plan& plan, int ranks);

// Builds the stages of this rank and drops the units of other ranks. Each stage that uses a tied parameter
// (tied embeddings) has a copy of it; finish_gradients() of a rank's last stage sums the gradients of the
// copies. Parameters on meta are filled from `source`, or from their Init with `seed` if the source is empty
// or returns false.
HEDDLE_API Stages build(Units units, const Plan& plan, const DeviceMesh& mesh, const ParameterSource& source,
                        uint64_t seed);

// Fills a shard from its Init, depending only on (seed, name, global index).
HEDDLE_API void initialise(const Shard& shard, uint64_t seed);

}  // namespace parallel
}  // namespace heddle
