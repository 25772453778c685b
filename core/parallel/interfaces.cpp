// Out-of-line destructors that anchor the vtables, once for all plugins; and looking interfaces up.
#include <optional>
#include <string>
#include <vector>

#include "heddle/parallel/plan.h"
#include "heddle/parallel/stage_interfaces.h"

namespace heddle {

ParallelStage::~ParallelStage() = default;
IStrategy::~IStrategy() = default;
IParallelizer::~IParallelizer() = default;
std::string IParallelizer::name() const {
  return "a parallelizer of the program";
}
void IParallelizer::check(Units&, const Sizes&) {}
void IParallelizer::check_device(bool) const {}
std::optional<int> IParallelizer::transform_order() const {
  return std::nullopt;
}
void IParallelizer::transform(Batch&, const DeviceMesh&) {}
std::vector<SideOutput*> IParallelizer::side_outputs() {
  return {};
}
void IParallelizer::after_update(const Updated&, const DeviceMesh&) {}

GatherHints::~GatherHints() = default;
ReductionHints::~ReductionHints() = default;
GradientAverage::~GradientAverage() = default;
WholeParameters::~WholeParameters() = default;
StepRestart::~StepRestart() = default;

StageInterfaces::StageInterfaces(ParallelStage& stage)
    : stage_(&stage),
      gathers_(dynamic_cast<GatherHints*>(&stage)),
      reductions_(dynamic_cast<ReductionHints*>(&stage)),
      average_(dynamic_cast<const GradientAverage*>(&stage)),
      whole_(dynamic_cast<WholeParameters*>(&stage)),
      restart_(dynamic_cast<StepRestart*>(&stage)) {}

std::vector<WholeParameter> StageInterfaces::hold_whole() const {
  if (whole_ != nullptr) return whole_->hold_whole();
  std::vector<WholeParameter> whole;
  for (const Shard& shard : stage_->owned()) whole.push_back({shard.name, shard.tensor.detach()});
  return whole;
}

}  // namespace heddle
