// Packing, one reduce-scatter, and views of the sum.
#include "heddle/sharding/flat_gradients.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

namespace heddle::sharding {

FlatGradients::FlatGradients(std::vector<Parameter> parameters, std::vector<int64_t> begins,
                             const at::Tensor& held, const Groups& groups)
    : parameters_(std::move(parameters)),
      begins_(std::move(begins)),
      sum_(at::zeros_like(held)),
      had_(parameters_.size(), 0),
      groups_(groups) {
  for (const Parameter& parameter : parameters_) {
    std::vector<at::Tensor>& boxes = boxes_.emplace_back();
    for (const Shard& shard : parameter.shards) {
      const int64_t at =
          shard.tensor.numel() == 0 ? 0 : shard.tensor.storage_offset() - held.storage_offset();
      boxes.push_back(sum_.narrow(0, at, shard.tensor.numel()).view(shard.tensor.sizes()).variable_data());
    }
  }
}

void FlatGradients::begin_step() {
  sum_.zero_();
  had_.assign(had_.size(), 0);
  for (Parameter& parameter : parameters_) parameter.leaf.mutable_grad().reset();
}

std::unique_ptr<Work> FlatGradients::reduce() {
  packed_ = at::zeros({groups_.shards * sum_.numel()}, sum_.options());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].leaf.mutable_grad();
    if (!gradient.defined()) continue;
    packed_.narrow(0, begins_[i], gradient.numel()).view(gradient.sizes()).copy_(gradient);
    gradient.reset();
    had_[i] = 1;
  }
  if (groups_.shards == 1) return nullptr;
  arrived_ = at::empty_like(sum_);
  return groups_.reduce->reduce_scatter(arrived_, packed_);
}

void FlatGradients::reduced() {
  sum_.add_(groups_.shards == 1 ? packed_ : arrived_);
  packed_ = arrived_ = at::Tensor();
}

std::unique_ptr<Work> FlatGradients::reduce_replicas() {
  return groups_.across == nullptr ? nullptr : groups_.across->all_reduce(sum_);
}

void FlatGradients::place(std::span<const char> used) {
  for (size_t i = 0; i < parameters_.size(); ++i)
    for (size_t box = 0; box < boxes_[i].size(); ++box)
      parameters_[i].shards[box].tensor.mutable_grad() = used[i] != 0 ? boxes_[i][box] : at::Tensor();
}

}  // namespace heddle::sharding
