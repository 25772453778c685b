// From units to this rank's stages: the split, parallelizers, the strategy, then the values of the
// parameters.
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

// How a model is cut for a pipeline.
struct StageMap {
  std::vector<int> stage_of_unit;  // ascending
  std::vector<int> rank_of_stage;  // positions on the axis pp
};

// Throws Error{config} if the pipeline's fields do not fit the model.
HEDDLE_API StageMap map_stages(const Units& units, const Plan& plan, int ranks);

// Units of stages on other ranks are dropped. Of a parameter that several stages use (tied embeddings) each
// stage has a copy; finish_gradients() of a rank's last stage sums their gradients. Parameters on meta are
// filled from `source`, or, if it is empty or returns false, from their Init with `seed`.
HEDDLE_API Stages build(Units units, const Plan& plan, const DeviceMesh& mesh, const ParameterSource& source,
                        uint64_t seed);

// Fills a shard from its Init: a function of (seed, name, global index) and nothing else.
HEDDLE_API void initialise(const Shard& shard, uint64_t seed);

}  // namespace parallel
}  // namespace heddle
