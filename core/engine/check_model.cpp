// Checks of the model, the same on every rank, before any rank communicates.
#include <algorithm>
#include <string>
#include <vector>

#include "core/parallel/attach.h"
#include "core/parallel/features.h"
#include "core/parallel/recompute.h"
#include "core/schedule/microbatches.h"
#include "heddle/base/error.h"
#include "heddle/engine/engine.h"
#include "heddle/model/module_unit.h"
#include "lib/train/program.h"

namespace heddle::engine {
namespace {

// Refuses axes that a module does not support, at the line of the axis in the configuration.
void refuse_axes(const Setup& setup, const Units& units) {
  const Node* section = setup.configuration.find("distributed");
  model::visit(units, [&](const std::string& path, Module& module) {
    for (const Refusal& refusal : module.traits().refuses) {
      const AxisInfo* axis = setup.axis_table.find(refusal.axis);
      if (axis == nullptr || setup.sizes.of(refusal.axis) == 1) continue;
      const Node* given = section == nullptr ? nullptr : section->find(axis->key);
      throw Error(ErrorCode::config, given == nullptr ? "distributed." + axis->key : given->where(),
                  refusal.text,
                  "'" + path + "' (" + std::string(module.kind()) + ") of the model refuses it: set " +
                      (axis->key.empty() ? axis->name : axis->key) + ": 1");
    }
  });
}

[[noreturn]] void refuse_post_validation(const Plan& plan, const std::string& why) {
  throw Error(ErrorCode::config, plan.pipeline.where + ".pp_post_validation",
              "an update cannot be undone once the next step has begun: " + why,
              "set pp_post_validation: false");
}

// A step may begin anew after its first forwards, with other parameters.
void check_post_validation(const Plan& plan, const Units& units) {
  if (plan.schedule == nullptr || !plan.pipeline.post_validation) return;
  const std::vector<std::string> able = plan.strategy->needs().may_use;
  if (std::find(able.begin(), able.end(), kPostValidation) == able.end())
    refuse_post_validation(plan, "the strategy '" + plan.strategy_name + "' does not forget forwards");
  for (const auto& unit : units)
    if (auto* buffers = dynamic_cast<UnitBuffers*>(unit.get());
        buffers != nullptr && !buffers->buffers().empty())
      refuse_post_validation(plan,
                             "'" + std::string(unit->name()) + "' has buffers that its forward changes");
  if (!parallel::listeners(units).empty())
    refuse_post_validation(plan,
                           "modules of the model act on each update (a router's correction bias, or "
                           "router_aux_loss_type: global)");
}

}  // namespace

void check_model(const Plan& plan, const Setup& setup, Units& units, int64_t batch_rows) {
  refuse_axes(setup, units);
  // A check for another machine has no device; then the name of the backend tells.
  const bool on_cpu = plan.device == nullptr && (setup.backend.empty() || setup.backend == "gloo");
  for (const auto& parallelizer : plan.parallelizers) {
    parallelizer->check(units, setup.sizes);
    parallelizer->check_device(on_cpu);  // may depend on the sizes
  }
  const int stages = setup.sizes.of(kPipelineAxis);
  parallel::attached_to(units, plan);
  parallel::check_recompute(units, plan.activation_checkpointing);
  parallel::StageMap map = parallel::map_stages(units, plan, stages);
  check_post_validation(plan, units);
  if (plan.schedule == nullptr || batch_rows == 0) return;
  const int microbatches = schedule::count_microbatches(batch_rows, plan.pipeline);
  train::check_schedule({std::move(map.rank_of_stage), plan.schedule, plan.pipeline}, stages, microbatches);
}

}  // namespace heddle::engine
