// Selects the shards that train with their rates, and surrounds each update.
#include "lib/train/optimizer/updater.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <utility>

#include "core/base/pattern.h"
#include "heddle/ops/compute_log.h"

namespace heddle::train {
namespace {

std::vector<text::Pattern> compile(const std::vector<ParameterGroup>& groups) {
  std::vector<text::Pattern> patterns;
  for (const ParameterGroup& group : groups)
    patterns.emplace_back(group.pattern, "optimizer.param_group_overrides");
  return patterns;
}

// The first group whose pattern matches.
ParameterGroup group_of(const std::string& name, const std::vector<ParameterGroup>& groups,
                        const std::vector<text::Pattern>& patterns) {
  for (size_t i = 0; i < patterns.size(); ++i)
    if (patterns[i].found_in(name)) return groups[i];
  return {};
}

bool low_precision(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
}

}  // namespace

Updater::Updater(std::span<Shard* const> shards, const DeviceMesh& mesh, const StepConfig& config,
                 IOptimizer& optimizer)
    : optimizer_(optimizer) {
  const std::vector<text::Pattern> patterns = compile(config.groups);
  for (Shard* shard : shards) {
    if (!shard->tensor.requires_grad()) continue;
    const ParameterGroup group = group_of(shard->name, config.groups, patterns);
    const at::Tensor weight = shard->tensor.detach();
    const bool master = config.master_weights && low_precision(weight);
    shards_.push_back(shard);
    trained_.push_back({shard, master ? weight.to(at::kFloat) : weight, group.lr_mult, group.wd_mult});
  }
  optimizer_.start(trained_, mesh);
}

void Updater::update(const OptimizerUpdate& update) {
  const at::NoGradGuard no_gradients;
  if (optimizer_.takes_divisor_and_skip()) {
    optimizer_.update(update);
  } else if (!update.skip.defined() || update.skip.item<float>() == 0) {
    if (update.divisor.defined())
      for (Shard* shard : shards_)
        if (at::Tensor& gradient = shard->tensor.mutable_grad(); gradient.defined())
          gradient.div_(update.divisor.to(gradient.device()));
    optimizer_.update({update.lr, update.weight_decay, {}, {}});
  }
  store_masters(/*without_gradient=*/false);
  drop_gradients();
}

void Updater::drop_gradients() {
  for (Shard* shard : shards_) shard->tensor.mutable_grad().reset();
}

void Updater::record_update() const {
  OperatorCost cost;
  const auto bytes = [](const at::Tensor& x) { return static_cast<double>(x.nbytes()); };
  for (const TrainedShard& one : trained_) {
    const at::Tensor& gradient = one.shard->tensor.grad();
    if (!gradient.defined()) continue;
    cost.operations += 12 * static_cast<double>(one.weight.numel());
    cost.read += bytes(gradient) + bytes(one.weight);
    cost.written += bytes(one.weight) + (one.has_master() ? bytes(one.shard->tensor) : 0);
  }
  for (const OptimizerState& state : optimizer_.state())
    for (const StateTensor& tensor : state.tensors) {
      cost.read += bytes(tensor.tensor);
      cost.written += bytes(tensor.tensor);
    }
  record_operator("heddle::update", cost);
}

// From the master copies to shards of a lower dtype; those without a gradient have not changed.
void Updater::store_masters(bool without_gradient) const {
  for (const TrainedShard& one : trained_)
    if (one.has_master() && (without_gradient || one.shard->tensor.grad().defined()))
      one.shard->tensor.detach().copy_(one.weight);
}

void Updater::keep(bool state, bool gradients) {
  const at::NoGradGuard no_gradients;
  kept_.has_state = state;
  if (state) {
    if (kept_.state.empty()) {
      for (const TrainedShard& one : trained_) kept_.state.push_back(one.weight);
      for (const OptimizerState& one : optimizer_.state())
        for (const StateTensor& tensor : one.tensors) kept_.state.push_back(tensor.tensor);
      for (const at::Tensor& tensor : kept_.state) kept_.copies.push_back(at::empty_like(tensor));
    }
    if (!kept_.state.empty()) at::_foreach_copy_(kept_.copies, kept_.state);
  }
  kept_.had.assign(shards_.size(), 0);
  if (gradients) keep_gradients();
}

void Updater::keep_gradients() {
  kept_.gradients.resize(shards_.size());
  for (size_t i = 0; i < shards_.size(); ++i) {
    const at::Tensor& gradient = shards_[i]->tensor.grad();
    kept_.had[i] = gradient.defined() ? 1 : 0;
    if (!gradient.defined()) continue;
    if (!kept_.gradients[i].defined()) kept_.gradients[i] = at::empty_like(gradient);
    kept_.gradients[i].copy_(gradient);
  }
}

void Updater::undo() {
  const at::NoGradGuard no_gradients;
  if (kept_.has_state) {
    if (!kept_.state.empty()) at::_foreach_copy_(kept_.state, kept_.copies);
    store_masters(/*without_gradient=*/true);
  }
  for (size_t i = 0; i < shards_.size(); ++i)
    if (kept_.had[i]) shards_[i]->tensor.mutable_grad() = kept_.gradients[i];
}

std::vector<OptimizerState> Updater::state() const {
  std::vector<OptimizerState> out;
  for (OptimizerState& state : optimizer_.state())
    if (state.shard->tensor.numel() > 0) out.push_back(std::move(state));
  for (const TrainedShard& one : trained_) {
    if (!one.has_master() || one.shard->tensor.numel() == 0) continue;
    auto found = std::find_if(out.begin(), out.end(),
                              [&](const OptimizerState& state) { return state.shard == one.shard; });
    if (found == out.end()) found = out.insert(out.end(), {one.shard, {}});
    found->tensors.push_back(box_state(*one.shard, "master", one.weight));
  }
  return out;
}

}  // namespace heddle::train
