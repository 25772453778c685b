// The optimizer's lists are made once; a step gathers the gradients and calls a fused kernel: heddle's on the
// CPU, ATen's elsewhere.
#include "lib/train/optimizer/adamw.h"

#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <cmath>

#include "lib/train/optimizer/adamw_cpu.h"

namespace heddle::train {
std::unique_ptr<IOptimizer> make_adamw(const AdamWConfig& config) {
  return std::make_unique<AdamW>(config);
}

void AdamW::start(std::span<const TrainedShard> shards, const DeviceMesh& /*mesh*/) {
  for (const TrainedShard& one : shards) {
    if (one.weight.numel() == 0) continue;
    Group& group = group_for(one);
    group.shards.push_back(one.shard);
    group.weights.push_back(one.weight);
    group.averages.push_back(at::zeros_like(one.weight));
    group.squares.push_back(at::zeros_like(one.weight));
  }
  for (Group& group : groups_) {
    group.all_steps =
        at::zeros({static_cast<int64_t>(group.shards.size())}, group.weights[0].options().dtype(at::kFloat));
    for (size_t i = 0; i < group.shards.size(); ++i) group.steps.push_back(group.all_steps.select(0, i));
  }
}

AdamW::Group& AdamW::group_for(const TrainedShard& one) {
  for (Group& group : groups_) {
    const at::Tensor& first = group.shards.front()->tensor;
    if (group.lr_mult == one.lr_mult && group.wd_mult == one.wd_mult &&
        first.device() == one.shard->tensor.device() &&
        first.scalar_type() == one.shard->tensor.scalar_type())
      return group;
  }
  groups_.emplace_back();
  groups_.back().lr_mult = one.lr_mult;
  groups_.back().wd_mult = one.wd_mult;
  return groups_.back();
}

std::vector<OptimizerState> AdamW::state() {
  std::vector<OptimizerState> out;
  for (const Group& group : groups_)
    for (size_t i = 0; i < group.shards.size(); ++i) {
      const Shard& shard = *group.shards[i];
      out.push_back(
          {&shard,
           {box_state(shard, "exp_avg", group.averages[i]), box_state(shard, "exp_avg_sq", group.squares[i]),
            number_state("step", group.steps[i])}});
    }
  return out;
}

// Shards in host memory are updated there, while the norm was taken on the device. Without decay Adam is
// AdamW.
void AdamW::update(const OptimizerUpdate& update) {
  at::NoGradGuard no_gradients;
  for (Group& group : groups_) {
    const c10::Device home = group.weights.front().device();
    const auto at_home = [&](const at::Tensor& value) {
      return value.defined() && value.device() != home ? value.to(home) : value;
    };
    const double decay = update.weight_decay * group.wd_mult;
    update_group(group, {update.lr * group.lr_mult, decay, !config_.decoupled && decay != 0,
                         at_home(update.divisor), at_home(update.skip)});
  }
}

void AdamW::run_kernel(at::TensorList weights, at::TensorList gradients, at::TensorList averages,
                       at::TensorList squares, at::TensorList steps, const Rates& rates) const {
  if (weights.front().is_cpu()) {
    if (rates.skip.defined() && rates.skip.item<float>() == 1) return;
    // The norm has read the last gradients last: they may be in the cache.
    for (size_t i = weights.size(); i-- > 0;)
      AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, weights[i].scalar_type(), "update", [&] {
        run_on_cpu<scalar_t>(weights[i], gradients[i], averages[i], squares[i], steps[i], rates);
      });
    return;
  }
  const auto given = [](const at::Tensor& value) {
    return value.defined() ? std::make_optional(value) : std::nullopt;
  };
  if (rates.coupled)
    at::_fused_adam_(weights, gradients, averages, squares, {}, steps, rates.lr, config_.beta1, config_.beta2,
                     rates.weight_decay, config_.eps, /*amsgrad=*/false, /*maximize=*/false,
                     given(rates.divisor), given(rates.skip));
  else
    at::_fused_adamw_(weights, gradients, averages, squares, {}, steps, rates.lr, config_.beta1,
                      config_.beta2, rates.weight_decay, config_.eps, /*amsgrad=*/false, /*maximize=*/false,
                      given(rates.divisor), given(rates.skip));
}

template <class Number>
void AdamW::run_on_cpu(const at::Tensor& weight, const at::Tensor& gradient, const at::Tensor& average,
                       const at::Tensor& square, const at::Tensor& steps, const Rates& rates) const {
  using W = UpdateNumber<Number>;
  const double count = *steps.const_data_ptr<float>();
  AdamWFactors<W> factors{};
  factors.gradient = rates.divisor.defined() ? 1 / rates.divisor.item<float>() : 1.0f;
  factors.decay = rates.coupled ? W{1} : static_cast<W>(1 - rates.lr * rates.weight_decay);
  factors.coupled = rates.coupled ? static_cast<W>(rates.weight_decay) : W{0};
  factors.rest1 = static_cast<W>(1 - config_.beta1);
  factors.beta2 = static_cast<W>(config_.beta2);
  factors.rest2 = static_cast<W>(1 - config_.beta2);
  factors.eps = static_cast<W>(config_.eps);
  factors.step = static_cast<W>(rates.lr / (1 - std::pow(config_.beta1, count)));
  factors.root = static_cast<W>(1 / std::sqrt(1 - std::pow(config_.beta2, count)));
  const at::Tensor from = gradient.contiguous();
  const std::array<at::Tensor, 3> homes{weight, average, square};
  std::array<at::Tensor, 3> in_place;
  for (size_t i = 0; i < homes.size(); ++i) in_place[i] = homes[i].contiguous();
  adamw_cpu<Number>({in_place[0].mutable_data_ptr<Number>(), from.const_data_ptr<Number>(),
                     in_place[1].mutable_data_ptr<Number>(), in_place[2].mutable_data_ptr<Number>()},
                    weight.numel(), factors);
  for (size_t i = 0; i < homes.size(); ++i)
    if (!in_place[i].is_same(homes[i])) homes[i].copy_(in_place[i]);
  weight.unsafeGetTensorImpl()->bump_version();  // as ATen's kernel does: a forward may have kept it
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
}

}  // namespace heddle::train
