// Sharding at the start, then gather, copy out and free.
#include "group.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function.h>

#include <utility>

#include "heddle/parallel/storage.h"

namespace heddle::fsdp2 {
namespace {

at::Tensor storage_on(c10::Device device, at::ScalarType dtype, int64_t elements) {
  return at::empty({elements}, at::TensorOptions().dtype(dtype).device(device));
}

c10::Device home_of(const at::Tensor& tensor, const Place& place) {
  return tensor.is_meta() ? place.device : tensor.device();
}

}  // namespace

void Staging::expect(at::ScalarType dtype, int64_t elements) {
  for (auto& [known, largest] : largest_)
    if (known == dtype) return void(largest = std::max(largest, elements));
  largest_.emplace_back(dtype, elements);
}

at::Tensor Staging::take(at::ScalarType dtype, c10::Device device) {
  for (size_t i = 0; i < free_.size(); ++i) {
    if (free_[i].scalar_type() != dtype || free_[i].device() != device) continue;
    std::swap(free_[i], free_.back());
    at::Tensor found = std::move(free_.back());
    free_.pop_back();
    return found;
  }
  int64_t elements = 0;
  for (auto& [known, largest] : largest_)
    if (known == dtype) elements = largest;
  return storage_on(device, dtype, elements);
}

Group::Group(std::vector<ParameterSlot> slots, std::span<const Placed> placed, const Place& place)
    : storage_dtype_(slots.front().tensor->scalar_type()),
      compute_dtype_(place.compute.value_or(storage_dtype_)),
      same_(place.ranks == 1 && compute_dtype_ == storage_dtype_),
      ranks_(place.ranks),
      rank_(place.rank) {
  at::NoGradGuard no_gradients;
  Line line;
  for (ParameterSlot& slot : slots) add(slot, placed, place, line);
  if (!same_) {
    lay_out(slots, place, line.elements());
    return;
  }
  state_ = State::whole;
  for (size_t i = 0; i < slots.size(); ++i) {
    at::Tensor& tensor = *slots[i].tensor;
    if (tensor.is_meta()) slots[i].point(at::empty(tensor.sizes(), tensor.options().device(place.device)));
    parameters_[i].leaf = parameters_[i].shard.tensor = tensor;
  }
}

// Measures one parameter: its place in the flat part, and the box of the whole that this rank holds.
void Group::add(ParameterSlot& slot, std::span<const Placed> placed, const Place& place, Line& line) {
  Parameter parameter;
  parameter.shard = whole_shard(slot, placed);
  parameter.trainable = slot.trainable();
  trainable_ += parameter.trainable;
  foreign_ = foreign_ || slot.foreign;
  all_trainable_ = all_trainable_ && parameter.trainable;
  if (place.ranks > 1 && slot.tensor->dim() == 0)
    throw Error(ErrorCode::input, "fsdp2", "parameter '" + slot.name + "' has no dim that could be split",
                "give it the shape [1], or use a strategy that keeps parameters whole");
  parameter.rows = slot.tensor->dim() == 0 ? 1 : slot.tensor->size(0);
  parameter.row_elements = parameter.rows == 0 ? 0 : slot.tensor->numel() / parameter.rows;
  parameter.chunk = chunk_rows(parameter.rows, place.ranks);
  parameter.offset = line.add(parameter.chunk_elements());
  if (place.ranks > 1) {
    parameter.shard.offset[0] += rows_of(parameter.rows, place.ranks, place.rank).begin;
    parameter.shard.axes.push_back(place.axis);
  }
  parameters_.push_back(std::move(parameter));
}

at::Tensor Group::leaf_of(const Parameter& parameter, at::IntArrayRef sizes, int64_t at) const {
  return whole_.narrow(0, at, parameter.rows * parameter.row_elements).view(sizes).variable_data();
}

// Builds the flat part with a shard of each parameter, and the whole storage with a leaf of each.
void Group::lay_out(std::vector<ParameterSlot>& slots, const Place& place, int64_t part) {
  const c10::Device device = home_of(*slots.front().tensor, place);
  Line line;
  std::vector<int64_t> places;
  for (const Parameter& parameter : parameters_)
    places.push_back(line.add(ranks_ * parameter.chunk_elements()));
  flat_ = storage_on(device, storage_dtype_, part);
  whole_ = storage_on(device, compute_dtype_, line.elements());
  whole_bytes_ = whole_.nbytes();
  for (size_t i = 0; i < slots.size(); ++i) {
    Parameter& parameter = parameters_[i];
    const at::Tensor tensor = *slots[i].tensor;
    const Rows mine = rows_of(parameter.rows, ranks_, rank_);
    std::vector<int64_t> sizes = tensor.sizes().vec();
    if (!sizes.empty()) sizes[0] = mine.count;
    parameter.shard.tensor =
        flat_.narrow(0, parameter.offset, mine.count * parameter.row_elements).view(sizes).variable_data();
    if (!tensor.is_meta())
      parameter.shard.tensor.copy_(tensor.dim() == 0 ? tensor : tensor.narrow(0, mine.begin, mine.count));
    parameter.shard.tensor.set_requires_grad(parameter.trainable);
    parameter.leaf = slots[i].point(leaf_of(parameter, tensor.sizes(), places[i]));
    targets_.push_back(whole_.narrow(0, places[i], ranks_ * parameter.chunk_elements())
                           .view({ranks_, parameter.chunk_elements()}));
  }
  if (ranks_ > 1) resize(0);
}

void Group::resize(size_t bytes) {
  parallel::resize_storage(whole_, bytes);
}

void Group::expect(Staging& staging) const {
  if (parameters_.size() > 1) staging.expect(compute_dtype_, ranks_ * flat_.numel());
}

void Group::start(Communicator& ranks, Staging& staging) {
  if (state_ != State::sharded || whole_bytes_ == 0) return;
  at::NoGradGuard no_gradients;
  if (parameters_.size() == 1) {  // its part of each rank follows that of the one before: no copy out
    resize(whole_bytes_);
    arriving_ = whole_;
  } else {
    staging_ = staging.take(compute_dtype_, flat_.device());
    arriving_ = staging_.narrow(0, 0, ranks_ * flat_.numel());
  }
  at::Tensor part = flat_;
  if (compute_dtype_ != storage_dtype_) {
    part = arriving_.narrow(0, rank_ * flat_.numel(), flat_.numel());
    part.copy_(flat_);
  }
  work_ = ranks.all_gather(arriving_, part);
  state_ = State::in_flight;
}

void Group::finish(Staging& staging) {
  if (state_ != State::in_flight) return;
  work_->wait();
  work_.reset();
  state_ = State::whole;
  if (staging_.defined()) {
    at::NoGradGuard no_gradients;
    resize(whole_bytes_);
    const int64_t part = flat_.numel();
    for (size_t i = 0; i < parameters_.size(); ++i)
      targets_[i].copy_(
          arriving_.as_strided({ranks_, parameters_[i].chunk_elements()}, {part, 1}, parameters_[i].offset));
    staging.give(std::exchange(staging_, {}));
  }
  arriving_ = at::Tensor();
}

void Group::free() {
  if (state_ != State::whole || ranks_ == 1) return;
  resize(0);
  state_ = State::sharded;
}

void Group::refresh() {
  if (same_) return;
  at::NoGradGuard no_gradients;
  whole_.copy_(flat_);
  state_ = State::whole;
}

}  // namespace heddle::fsdp2
