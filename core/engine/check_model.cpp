// Checks of the model, the same on every rank, before any rank communicates.
#include "core/parallel/attach.h"
#include "core/parallel/recompute.h"
#include "core/schedule/microbatches.h"
#include "heddle/engine/engine.h"
#include "lib/train/program.h"

namespace heddle::engine {

void check_model(const Plan& plan, const Setup& setup, Units& units, int64_t batch_rows) {
  // A check for another machine has no device; then the name of the backend tells.
  const bool on_cpu = plan.device == nullptr && (setup.backend.empty() || setup.backend == "gloo");
  for (const auto& parallelizer : plan.parallelizers) {
    parallelizer->check_device(on_cpu);
    parallelizer->check(units, setup.sizes);
  }
  parallel::attached_to(units, plan);
  parallel::check_recompute(units, plan.activation_checkpointing);
  parallel::StageMap map = parallel::map_stages(units, plan, setup.sizes.of(kPipelineAxis));
  if (plan.schedule == nullptr || batch_rows == 0) return;
  const int microbatches = schedule::count_microbatches(batch_rows, plan.pipeline);
  train::check_schedule({std::move(map.rank_of_stage), plan.schedule, plan.pipeline},
                        setup.sizes.of(kPipelineAxis), microbatches);
}

}  // namespace heddle::engine
