// The optimizer's lists are made once; a step gathers the gradients and calls the fused kernel.
#include "heddle/train/adamw.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <regex>

#include "heddle/base/error.h"

namespace heddle::train {
namespace {

// The index of the first group whose pattern matches, or groups.size().
size_t group_of(const std::string& name, const std::vector<std::regex>& patterns) {
  for (size_t i = 0; i < patterns.size(); ++i)
    if (std::regex_search(name, patterns[i])) return i;
  return patterns.size();
}

std::vector<std::regex> compile(const std::vector<ParameterGroup>& groups) {
  std::vector<std::regex> patterns;
  for (const ParameterGroup& group : groups) {
    try {
      patterns.emplace_back(group.pattern);
    } catch (const std::regex_error& fault) {
      throw Error(ErrorCode::config, "optimizer.param_group_overrides",
                  "'" + group.pattern + "' is not a regular expression: " + fault.what());
    }
  }
  return patterns;
}

bool low_precision(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
}

int64_t offset_between(const at::Tensor& first, const at::Tensor& next) {
  return next.storage_offset() - first.storage_offset();
}

// `next` begins in the storage of `last` where that ends, but for padding up to a cache line or two.
bool follows(const at::Tensor& last, const at::Tensor& next) {
  constexpr int64_t kMostPadding = 64;
  const int64_t gap = offset_between(last, next) - last.numel();
  return last.storage().unsafeGetStorageImpl() == next.storage().unsafeGetStorageImpl() && gap >= 0 &&
         gap < kMostPadding && last.is_contiguous() && next.is_contiguous();
}

// From the first element of `first` to the last one of `last`, padding included.
at::Tensor stretch(const at::Tensor& first, const at::Tensor& last) {
  return first.detach().as_strided({offset_between(first, last) + last.numel()}, {1});
}

at::Tensor view_like(const at::Tensor& flat, const at::Tensor& first, const at::Tensor& shard) {
  return flat.narrow(0, offset_between(first, shard), shard.numel()).view(shard.sizes());
}

// The gradients lie to one another as the weights do.
bool lie_alike(std::span<Shard* const> shards) {
  const at::Tensor &weight = shards.front()->tensor, &gradient = weight.grad();
  for (const Shard* shard : shards) {
    const at::Tensor& other = shard->tensor.grad();
    if (other.storage().unsafeGetStorageImpl() != gradient.storage().unsafeGetStorageImpl() ||
        !other.is_contiguous() || offset_between(gradient, other) != offset_between(weight, shard->tensor))
      return false;
  }
  return true;
}

}  // namespace

AdamW::AdamW(std::span<Shard* const> shards, const StepConfig& config) : config_(config) {
  const std::vector<std::regex> patterns = compile(config.groups);
  for (Shard* shard : shards) {
    if (shard->tensor.numel() == 0 || !shard->tensor.requires_grad()) continue;
    const size_t place = group_of(shard->name, patterns);
    const bool named = place < config.groups.size();
    group_for(*shard, named ? config.groups[place].lr_mult : 1, named ? config.groups[place].wd_mult : 1)
        .shards.push_back(shard);
  }
  at::NoGradGuard no_gradients;
  for (Group& group : groups_) add_state(group);
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

void AdamW::add_state(Group& group) const {
  const size_t count = group.shards.size();
  const auto tensor = [&](size_t index) -> const at::Tensor& { return group.shards[index]->tensor; };
  for (size_t first = 0, end = 0; first < count; first = end) {
    for (end = first + 1; end < count && follows(tensor(end - 1), tensor(end));) ++end;
    const at::Tensor weights = stretch(tensor(first), tensor(end - 1));
    const bool master = config_.master_weights && low_precision(weights);
    Run run{first, end - first, master ? weights.to(at::kFloat) : weights, {}, {}};
    run.averages = at::zeros_like(run.weights);
    run.squares = at::zeros_like(run.weights);
    for (size_t i = first; i < end; ++i) {
      group.weights.push_back(view_like(run.weights, tensor(first), tensor(i)));
      group.averages.push_back(view_like(run.averages, tensor(first), tensor(i)));
      group.squares.push_back(view_like(run.squares, tensor(first), tensor(i)));
    }
    group.runs.push_back(std::move(run));
  }
  group.all_steps = at::zeros({static_cast<int64_t>(count)}, group.weights[0].options().dtype(at::kFloat));
  for (size_t i = 0; i < count; ++i) group.steps.push_back(group.all_steps.select(0, i));
}

void AdamW::update(double lr, double weight_decay, const at::Tensor& divisor) {
  at::NoGradGuard no_gradients;
  for (Group& group : groups_) update_group(group, lr * group.lr_mult, weight_decay * group.wd_mult, divisor);
}

void AdamW::add_run(Group& group, Lists& lists, const Run& run) const {
  const auto add = [&](const at::Tensor& weights, const at::Tensor& gradients, const at::Tensor& averages,
                       const at::Tensor& squares, const at::Tensor& step) {
    lists.weights.push_back(weights);
    lists.gradients.push_back(
        gradients.scalar_type() == weights.scalar_type() ? gradients : gradients.to(weights.scalar_type()));
    lists.averages.push_back(averages);
    lists.squares.push_back(squares);
    lists.steps.push_back(step);
  };
  const std::span<Shard* const> shards(group.shards.data() + run.first, run.count);
  if (lie_alike(shards))
    return add(run.weights, stretch(shards.front()->tensor.grad(), shards.back()->tensor.grad()),
               run.averages, run.squares, group.steps[run.first]);
  for (size_t i = run.first; i < run.first + run.count; ++i)
    add(group.weights[i], group.shards[i]->tensor.grad(), group.averages[i], group.squares[i],
        group.steps[i]);
}

void AdamW::update_group(Group& group, double lr, double weight_decay, const at::Tensor& divisor) {
  for (const Shard* shard : group.shards)
    if (!shard->tensor.grad().defined()) group.in_step = false;
  if (group.in_step) {
    group.all_steps.add_(1);
    Lists lists;
    for (const Run& run : group.runs) add_run(group, lists, run);
    call_kernel(lists, lr, weight_decay, divisor);
  } else {
    update_one_by_one(group, lr, weight_decay, divisor);
  }
  for (size_t i = 0; i < group.shards.size(); ++i) {
    at::Tensor& weight = group.shards[i]->tensor;
    if (weight.scalar_type() != group.weights[i].scalar_type() && weight.grad().defined())
      weight.detach().copy_(group.weights[i]);
    weight.mutable_grad().reset();
  }
}

// Some parameter took no part in this step or an earlier one, so their steps are counted apart.
void AdamW::update_one_by_one(Group& group, double lr, double weight_decay, const at::Tensor& divisor) {
  Lists lists;
  for (size_t i = 0; i < group.shards.size(); ++i) {
    const at::Tensor& gradient = group.shards[i]->tensor.grad();
    if (!gradient.defined()) continue;
    group.steps[i].add_(1);
    lists.weights.push_back(group.weights[i]);
    lists.gradients.push_back(gradient.to(group.weights[i].scalar_type()));
    lists.averages.push_back(group.averages[i]);
    lists.squares.push_back(group.squares[i]);
    lists.steps.push_back(group.steps[i]);
  }
  call_kernel(lists, lr, weight_decay, divisor);
}

void AdamW::call_kernel(const Lists& lists, double lr, double weight_decay, const at::Tensor& divisor) const {
  if (lists.weights.empty()) return;
  at::_fused_adamw_(lists.weights, lists.gradients, lists.averages, lists.squares, {}, lists.steps, lr,
                    config_.optimizer.beta1, config_.optimizer.beta2, weight_decay, config_.optimizer.eps,
                    /*amsgrad=*/false, /*maximize=*/false,
                    divisor.defined() ? std::make_optional(divisor) : std::nullopt);
}

}  // namespace heddle::train
