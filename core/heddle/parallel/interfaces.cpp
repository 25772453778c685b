// Out-of-line destructors that anchor the vtables, once for all plugins; and looking interfaces up.
#include "heddle/parallel/plan.h"
#include "heddle/parallel/stage_interfaces.h"

namespace heddle {

ParallelStage::~ParallelStage() = default;
IStrategy::~IStrategy() = default;
IParallelizer::~IParallelizer() = default;
void IParallelizer::check(Units&, const Sizes&) {}
GatherHints::~GatherHints() = default;
ReductionHints::~ReductionHints() = default;
GradientAverage::~GradientAverage() = default;
WholeParameters::~WholeParameters() = default;

StageInterfaces::StageInterfaces(ParallelStage& stage)
    : stage_(&stage),
      gathers_(dynamic_cast<GatherHints*>(&stage)),
      reductions_(dynamic_cast<ReductionHints*>(&stage)),
      average_(dynamic_cast<const GradientAverage*>(&stage)),
      whole_(dynamic_cast<WholeParameters*>(&stage)) {}

std::vector<WholeParameter> StageInterfaces::hold_whole() const {
  if (whole_ != nullptr) return whole_->hold_whole();
  std::vector<WholeParameter> whole;
  for (const Shard& shard : stage_->owned()) whole.push_back({shard.name, shard.tensor.detach()});
  return whole;
}

}  // namespace heddle
