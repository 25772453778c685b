// The rules of a pipeline's batch.
#include "core/schedule/microbatches.h"
#include "heddle/schedule/simulate.h"

#include "heddle/base/error.h"

namespace heddle::schedule {
namespace {

constexpr int64_t kMostMicrobatches = 1 << 20;  // a table has a cell for each

}  // namespace

int count_microbatches(int64_t samples, const PipelineConfig& config) {
  const int64_t microbatches = samples / config.microbatch_size;
  if (microbatches > kMostMicrobatches)
    throw Error(ErrorCode::config, config.where + ".pp_microbatch_size",
                std::to_string(samples) + " samples in microbatches of " +
                    std::to_string(config.microbatch_size) + " are " + std::to_string(microbatches) +
                    " microbatches of one pass; at most " + std::to_string(kMostMicrobatches) + " are run",
                "a smaller step_scheduler.local_batch_size, or a larger pp_microbatch_size");
  if (samples >= 1 && samples % config.microbatch_size == 0) return static_cast<int>(microbatches);
  throw Error(ErrorCode::config, config.where + ".pp_microbatch_size",
              "local_batch_size must be divisible by microbatch_size: " + std::to_string(samples) + " and " +
                  std::to_string(config.microbatch_size),
              "change step_scheduler.local_batch_size or pp_microbatch_size");
}

std::string bubble_warning(int microbatches, int stages) {
  if (microbatches >= stages) return "";
  return "Number of microbatches (" + std::to_string(microbatches) +
         ") is less than the total number of stages (" + std::to_string(stages) +
         ") which may result in a bubble in the pipeline.";
}

}  // namespace heddle::schedule
