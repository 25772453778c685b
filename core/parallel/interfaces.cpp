// Out-of-line destructors that anchor the vtables, once for all plugins, and the defaults of interfaces.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/parallel/optimizer.h"
#include "heddle/parallel/plan.h"
#include "heddle/parallel/strategy.h"

namespace heddle {

ParallelStage::~ParallelStage() = default;
IStrategy::~IStrategy() = default;
Author IStrategy::author() const {
  return {};
}
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

std::vector<StateTensor> ParallelStage::state() {
  return {};
}

void ParallelStage::unshard() {}
void ParallelStage::reshard() {}
void ParallelStage::expect_last_backward() {}
void ParallelStage::reduce_gradients() {}

bool ParallelStage::can_restart() const {
  return false;
}

void ParallelStage::restart_step() {
  throw Error(ErrorCode::internal, "ParallelStage::restart_step", "the stage cannot begin a step anew",
              "override can_restart() and restart_step()");
}

std::vector<WholeParameter> ParallelStage::hold_whole() {
  std::vector<WholeParameter> whole;
  for (const Shard& shard : owned()) whole.push_back({shard.name, shard.tensor.detach()});
  return whole;
}

void ParallelStage::release_whole() {}

bool ParallelStage::can_host_forward() const {
  return false;
}

void ParallelStage::begin_forward(const Batch&) {
  throw Error(ErrorCode::input, "ParallelStage::begin_forward",
              "the stage runs its units itself: it has no forward that a host drives",
              "call forward(), or choose a strategy whose stages return true in can_host_forward()");
}

void ParallelStage::before(size_t) {}
void ParallelStage::after(size_t, const Tensors&) {}
void ParallelStage::end_forward() {}
void ParallelStage::abandon_forward() noexcept {}

UnitPrecision ParallelStage::unit_precision(size_t) const {
  return {};
}

std::optional<at::ScalarType> ParallelStage::autocast() const {
  return std::nullopt;
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

StateTensor rank_state(const DeviceMesh& mesh, std::span<const std::string> axes, StateTensor state) {
  std::string joined;
  for (const std::string& axis : axes) joined += (joined.empty() ? "" : "+") + axis;
  state.shape.insert(state.shape.begin(), joined.empty() ? 1 : mesh.size(joined));
  state.offset.insert(state.offset.begin(), joined.empty() ? 0 : mesh.rank(joined));
  state.tensor = state.tensor.unsqueeze(0);
  return state;
}

}  // namespace heddle
