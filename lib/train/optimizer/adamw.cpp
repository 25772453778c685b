// The optimizer's lists are made once; a step gathers the gradients and calls a fused kernel: heddle's for
// fp32 on the CPU, ATen's for the rest.
#include "lib/train/optimizer/adamw.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>

#include "core/base/pattern.h"
#include "lib/train/optimizer/adamw_cpu.h"

namespace heddle::train {
namespace {

// The index of the first group whose pattern matches, or groups.size().
size_t group_of(const std::string& name, const std::vector<text::Pattern>& patterns) {
  for (size_t i = 0; i < patterns.size(); ++i)
    if (patterns[i].found_in(name)) return i;
  return patterns.size();
}

std::vector<text::Pattern> compile(const std::vector<ParameterGroup>& groups) {
  std::vector<text::Pattern> patterns;
  for (const ParameterGroup& group : groups)
    patterns.emplace_back(group.pattern, "optimizer.param_group_overrides");
  return patterns;
}

bool low_precision(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
}

bool are_plain(at::TensorList tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    return tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous();
  });
}

}  // namespace

AdamW::AdamW(std::span<Shard* const> shards, const StepConfig& config) : config_(config) {
  const std::vector<text::Pattern> patterns = compile(config.groups);
  for (Shard* shard : shards) {
    if (shard->tensor.numel() == 0 || !shard->tensor.requires_grad()) continue;
    const size_t place = group_of(shard->name, patterns);
    const bool named = place < config.groups.size();
    add_state(
        group_for(*shard, named ? config.groups[place].lr_mult : 1, named ? config.groups[place].wd_mult : 1),
        *shard);
  }
  for (Group& group : groups_) {
    group.all_steps =
        at::zeros({static_cast<int64_t>(group.shards.size())}, group.weights[0].options().dtype(at::kFloat));
    for (size_t i = 0; i < group.shards.size(); ++i) group.steps.push_back(group.all_steps.select(0, i));
  }
}

AdamW::Group& AdamW::group_for(const Shard& shard, double lr_mult, double wd_mult) {
  for (Group& group : groups_) {
    const at::Tensor& first = group.shards.front()->tensor;
    if (group.lr_mult == lr_mult && group.wd_mult == wd_mult && first.device() == shard.tensor.device() &&
        first.scalar_type() == shard.tensor.scalar_type())
      return group;
  }
  groups_.emplace_back();
  groups_.back().lr_mult = lr_mult;
  groups_.back().wd_mult = wd_mult;
  return groups_.back();
}

void AdamW::add_state(Group& group, Shard& shard) {
  const at::Tensor weight = shard.tensor.detach();
  const bool master = config_.master_weights && low_precision(weight);
  group.shards.push_back(&shard);
  group.weights.push_back(master ? weight.to(at::kFloat) : weight);
  group.averages.push_back(at::zeros_like(group.weights.back()));
  group.squares.push_back(at::zeros_like(group.weights.back()));
}

std::vector<OptimizerState> AdamW::state() const {
  std::vector<OptimizerState> out;
  for (const Group& group : groups_)
    for (size_t i = 0; i < group.shards.size(); ++i) {
      const bool master = !group.weights[i].is_alias_of(group.shards[i]->tensor);
      out.push_back({group.shards[i], group.averages[i], group.squares[i], group.steps[i],
                     master ? group.weights[i] : at::Tensor()});
    }
  return out;
}

// Shards in host memory are updated there, while the norm was taken on the device.
void AdamW::update(double lr, double weight_decay, const at::Tensor& divisor, const at::Tensor& skip) {
  at::NoGradGuard no_gradients;
  for (Group& group : groups_) {
    const c10::Device home = group.weights.front().device();
    const auto at_home = [&](const at::Tensor& value) {
      return value.defined() && value.device() != home ? value.to(home) : value;
    };
    update_group(group, {lr * group.lr_mult, weight_decay * group.wd_mult, at_home(divisor), at_home(skip)});
  }
}

void AdamW::drop_gradients() {
  for (Group& group : groups_)
    for (Shard* shard : group.shards) shard->tensor.mutable_grad().reset();
}

void AdamW::run_kernel(at::TensorList weights, at::TensorList gradients, at::TensorList averages,
                       at::TensorList squares, at::TensorList steps, const Rates& rates) const {
  if (are_plain(weights) && are_plain(gradients) && are_plain(averages) && are_plain(squares))
    return run_on_cpu(weights, gradients, averages, squares, steps, rates);
  const auto given = [](const at::Tensor& value) {
    return value.defined() ? std::make_optional(value) : std::nullopt;
  };
  at::_fused_adamw_(weights, gradients, averages, squares, {}, steps, rates.lr, config_.optimizer.beta1,
                    config_.optimizer.beta2, rates.weight_decay, config_.optimizer.eps, /*amsgrad=*/false,
                    /*maximize=*/false, given(rates.divisor), given(rates.skip));
}

void AdamW::run_on_cpu(at::TensorList weights, at::TensorList gradients, at::TensorList averages,
                       at::TensorList squares, at::TensorList steps, const Rates& rates) const {
  if (rates.skip.defined() && rates.skip.item<float>() == 1) return;
  const AdamWConfig& config = config_.optimizer;
  AdamWFactors factors{};
  factors.gradient = rates.divisor.defined() ? 1 / rates.divisor.item<float>() : 1.0f;
  factors.decay = static_cast<float>(1 - rates.lr * rates.weight_decay);
  factors.rest1 = static_cast<float>(1 - config.beta1);
  factors.beta2 = static_cast<float>(config.beta2);
  factors.rest2 = static_cast<float>(1 - config.beta2);
  factors.eps = static_cast<float>(config.eps);
  // The norm has read the last gradients last: they may be in the cache.
  for (size_t i = weights.size(); i-- > 0;) {
    const double count = *steps[i].const_data_ptr<float>();
    factors.step = static_cast<float>(rates.lr / (1 - std::pow(config.beta1, count)));
    factors.root = static_cast<float>(1 / std::sqrt(1 - std::pow(config.beta2, count)));
    adamw_cpu({weights[i].mutable_data_ptr<float>(), gradients[i].const_data_ptr<float>(),
               averages[i].mutable_data_ptr<float>(), squares[i].mutable_data_ptr<float>()},
              weights[i].numel(), factors);
    weights[i].unsafeGetTensorImpl()->bump_version();  // as ATen's kernel does: a forward may have kept them
  }
}

void AdamW::update_group(Group& group, const Rates& rates) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(group.shards.size());
  for (size_t i = 0; i < group.shards.size(); ++i) {
    const at::Tensor& gradient = group.shards[i]->tensor.grad();
    if (!gradient.defined()) break;
    gradients.push_back(gradient.scalar_type() == group.weights[i].scalar_type()
                            ? gradient
                            : gradient.to(group.weights[i].scalar_type()));
  }
  const auto count = [&](const at::Tensor& steps) {
    steps.add_(1);
    if (rates.skip.defined()) steps.sub_(rates.skip.select(0, 0));
  };
  if (gradients.size() == group.shards.size()) {
    count(group.all_steps);
    run_kernel(group.weights, gradients, group.averages, group.squares, group.steps, rates);
  } else {  // some parameters have no gradient in this step: one by one
    for (size_t i = 0; i < group.shards.size(); ++i) {
      const at::Tensor gradient = group.shards[i]->tensor.grad();
      if (!gradient.defined()) continue;
      count(group.steps[i]);
      run_kernel(group.weights[i], gradient.to(group.weights[i].scalar_type()), group.averages[i],
                 group.squares[i], group.steps[i], rates);
    }
  }
  for (size_t i = 0; i < group.shards.size(); ++i) {
    at::Tensor& gradient = group.shards[i]->tensor.mutable_grad();
    if (gradient.defined()) store_weights(group, i);
    gradient.reset();
  }
}

// From the master copy to a shard of a lower dtype.
void AdamW::store_weights(Group& group, size_t i) {
  at::Tensor& weight = group.shards[i]->tensor;
  if (weight.scalar_type() != group.weights[i].scalar_type()) weight.detach().copy_(group.weights[i]);
}

}  // namespace heddle::train
