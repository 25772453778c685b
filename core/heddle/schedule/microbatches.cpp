// The rules of a pipeline's batch.
#include "heddle/schedule/microbatches.h"

#include "heddle/base/error.h"

namespace heddle::schedule {

int count_microbatches(int64_t samples, const PipelineWords& words) {
  if (samples >= 1 && samples % words.microbatch_size == 0)
    return static_cast<int>(samples / words.microbatch_size);
  throw Error(ErrorCode::config, words.where + ".pp_microbatch_size",
              "local_batch_size must be divisible by microbatch_size: " + std::to_string(samples) + " and " +
                  std::to_string(words.microbatch_size),
              "change step_scheduler.local_batch_size or pp_microbatch_size");
}

std::string bubble_warning(int microbatches, int stages) {
  if (microbatches >= stages) return "";
  return "Number of microbatches (" + std::to_string(microbatches) +
         ") is less than the total number of stages (" + std::to_string(stages) +
         ") which may result in a bubble in the pipeline.";
}

}  // namespace heddle::schedule
