// The defaults of an optimizer, and its state by name.
#include "heddle/parallel/optimizer.h"

#include <algorithm>
#include <utility>

#include "heddle/base/error.h"

namespace heddle {

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

auto find(const std::vector<StateTensor>& tensors, std::string_view name) {
  return std::find_if(tensors.begin(), tensors.end(),
                      [&](const StateTensor& tensor) { return tensor.name == name; });
}

}  // namespace

bool OptimizerState::has(std::string_view name) const {
  return find(tensors, name) != tensors.end();
}

const at::Tensor& OptimizerState::at(std::string_view name) const {
  const auto found = find(tensors, name);
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
