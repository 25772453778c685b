// Out-of-line destructors that anchor the vtables, once for all plugins; and looking interfaces up.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/parallel/optimizer.h"
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

IOptimizer::~IOptimizer() = default;

void IOptimizer::start(std::span<const TrainedShard> shards, const DeviceMesh& /*mesh*/) {
  for (const TrainedShard& one : shards)
    if (one.has_master() || one.lr_mult != 1 || one.wd_mult != 1)
      throw Error(ErrorCode::config, "step",
                  std::string(one.has_master() ? "StepConfig::master_weights" : "StepConfig::groups") +
                      " needs an optimizer that takes its shards from Step",
                  "override IOptimizer::start(), or leave it out");
}

std::vector<OptimizerState> IOptimizer::state() {
  return {};
}

namespace {

auto state_named(const std::vector<StateTensor>& tensors, std::string_view name) {
  return std::find_if(tensors.begin(), tensors.end(),
                      [&](const StateTensor& tensor) { return tensor.name == name; });
}

}  // namespace

bool OptimizerState::has(std::string_view name) const {
  return state_named(tensors, name) != tensors.end();
}

const at::Tensor& OptimizerState::at(std::string_view name) const {
  const auto found = state_named(tensors, name);
  if (found == tensors.end())
    throw Error(ErrorCode::internal, "optimizer",
                "the state of '" + shard->name + "' has no '" + std::string(name) + "'");
  return found->tensor;
}

StateTensor box_state(const Shard& shard, std::string name, at::Tensor tensor) {
  return {std::move(name), std::move(tensor), shard.shape, shard.offset};
}

StateTensor number_state(std::string name, at::Tensor tensor) {
  return {std::move(name), std::move(tensor), {}, {}};
}

}  // namespace heddle
