// What a rank of a run will hold, found without the rank.
#pragma once

#include "trainer/loop/job.h"
#include "trainer/metrics/model_size.h"

namespace heddle {

// The plan's own strategy shards the model on meta, in a world where nothing is sent: of the first ranks of
// the pipeline's stages, the one that holds most. Throws what the strategy refuses.
ModelSize size_on_rank(const Plan& plan, const Setup& setup, const JobModel& model, const Recipe& recipe);

}  // namespace heddle
