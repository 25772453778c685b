// Checks of the model, the same on every rank, before any rank communicates.
#include "core/parallel/attach.h"
#include "core/parallel/recompute.h"
#include "core/schedule/microbatches.h"
#include "heddle/base/error.h"
#include "heddle/engine/engine.h"
#include "heddle/nn/attention_core.h"
#include "lib/train/program.h"

namespace heddle::engine {
namespace {

// attend() would say so at the first step. Windows depend on the sequences: a wide one has no effect.
void refuse_soft_caps(const Units& units) {
  for (const auto& unit : units) {
    if (unit->module() == nullptr) continue;
    unit->module()->visit("", [&](const std::string& name, Module& module) {
      const auto* core = dynamic_cast<const AttentionCore*>(&module);
      if (core == nullptr || core->options().soft_cap == 0) return;
      throw Error(ErrorCode::not_built, "model",
                  "attention with a soft cap ('" + std::string(unit->name()) + "', '" + name +
                      "') is built for the CPU only",
                  "set dist_env.backend: gloo, or use a model without soft caps");
    });
  }
}

}  // namespace

void check_model(const Plan& plan, const Setup& setup, Units& units, int64_t batch_rows) {
  // A check for another machine has no device; then the name of the backend tells.
  const bool on_cpu = plan.device == nullptr && (setup.backend.empty() || setup.backend == "gloo");
  for (const auto& parallelizer : plan.parallelizers) {
    parallelizer->check(units, setup.sizes);
    parallelizer->check_device(on_cpu);  // may depend on the sizes
  }
  if (!on_cpu) refuse_soft_caps(units);
  parallel::attached_to(units, plan);
  parallel::check_recompute(units, plan.activation_checkpointing);
  parallel::StageMap map = parallel::map_stages(units, plan, setup.sizes.of(kPipelineAxis));
  if (plan.schedule == nullptr || batch_rows == 0) return;
  const int microbatches = schedule::count_microbatches(batch_rows, plan.pipeline);
  train::check_schedule({std::move(map.rank_of_stage), plan.schedule, plan.pipeline},
                        setup.sizes.of(kPipelineAxis), microbatches);
}

}  // namespace heddle::engine
