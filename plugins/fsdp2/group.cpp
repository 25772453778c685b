// Parameter groups: sharding at the start, then gather, copy-out and free.
#include "gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function.h>

#include <cstring>
#include <utility>

#include "heddle/parallel/shard.h"
#include "heddle/transport/shared_memory.h"

namespace heddle::fsdp2 {
namespace {

c10::Device home_of(const at::Tensor& tensor, const Place& place) {
  return tensor.is_meta() ? place.groups.device : tensor.device();
}

bool offloads(const Place& place, c10::Device device) {
  return place.shards != Place::Shards::on_device && !device.is_cpu();
}

// Options of the shards of parameters on `device`.
at::TensorOptions options_of_shards(const Place& place, c10::Device device) {
  if (!offloads(place, device)) return at::TensorOptions().device(device);
  return at::TensorOptions().device(at::kCPU).pinned_memory(place.shards == Place::Shards::in_pinned_memory);
}

at::ScalarType compute_dtype_of(const ParameterSlot& slot, const Place& place) {
  if (slot.compute) return *slot.compute;
  const at::ScalarType stored = slot.tensor->scalar_type();
  return at::isFloatingType(stored) ? place.compute.value_or(stored) : stored;
}

}  // namespace

Group::Group(std::vector<ParameterSlot> slots, std::span<const Placed> placed, const Place& place)
    : storage_dtype_(slots.front().tensor->scalar_type()),
      compute_dtype_(compute_dtype_of(slots.front(), place)),
      pinned_(slots.front().compute.has_value()),
      same_(place.ranks() == 1 && compute_dtype_ == storage_dtype_ &&
            !offloads(place, home_of(*slots.front().tensor, place))),
      ranks_(place.ranks()),
      rank_(place.rank()),
      memory_(place.memory),
      groups_(place.groups) {
  at::NoGradGuard no_gradients;
  Line line;
  for (ParameterSlot& slot : slots) add(slot, placed, place, line);
  if (same_)
    keep_whole(slots, place);
  else
    lay_out(slots, place, line.elements());
  if (gathers_beside()) memory_->expect(compute_dtype_, ranks_ * flat_.numel());
  if (trainable_ > 0) set_gradients(std::make_unique<Gradients>(*this, place));
}

// Uses the shards as leaves.
void Group::keep_whole(std::vector<ParameterSlot>& slots, const Place& place) {
  std::vector<ParameterSlot*> all;
  for (ParameterSlot& slot : slots) {
    all.push_back(&slot);
    const at::Tensor first = sharding::first_values(*slot.tensor, groups_);
    if (!first.is_same(*slot.tensor)) slot.tensor->detach().copy_(first);
  }
  parallel::lay_flat(all, place.groups.device);
  for (size_t i = 0; i < slots.size(); ++i)
    parameters_[i].leaf = parameters_[i].shard.tensor = *slots[i].tensor;
}

// Computes a parameter's offset in the flat part, and the box of the whole parameter that this rank holds.
void Group::add(ParameterSlot& slot, std::span<const Placed> placed, const Place& place, Line& line) {
  Parameter parameter;
  parameter.shard = whole_shard(slot, placed);
  parameter.trainable = slot.trainable();
  trainable_ += parameter.trainable;
  parameter.rows = slot.tensor->dim() == 0 ? 1 : slot.tensor->size(0);
  parameter.row_elements = parameter.rows == 0 ? 0 : slot.tensor->numel() / parameter.rows;
  parameter.chunk = chunk_rows(parameter.rows, place.ranks());
  parameter.offset = line.add(parameter.chunk_elements());
  if (place.ranks() > 1) {
    parameter.shard.offset[0] += rows_of(parameter.rows, place.ranks(), place.rank()).begin;
    parameter.shard.axes.push_back(place.groups.axes.shards);
  }
  parameters_.push_back(std::move(parameter));
}

at::Tensor Group::leaf_of(const Parameter& parameter, at::IntArrayRef sizes) const {
  return whole_.narrow(0, parameter.place, parameter.rows * parameter.row_elements)
      .view(sizes)
      .variable_data();
}

// Allocates the flat part with a shard of each parameter, and the whole storage with a leaf of each.
void Group::lay_out(std::vector<ParameterSlot>& slots, const Place& place, int64_t part) {
  const c10::Device device = home_of(*slots.front().tensor, place);
  Line line;
  for (Parameter& parameter : parameters_) parameter.place = line.add(ranks_ * parameter.chunk_elements());
  const auto like = options_of_shards(place, device).dtype(storage_dtype_);
  // If ranks share memory, other ranks read the part in place.
  flat_ = sharded() ? mesh::shared_empty(*groups_.gather, {part}, like) : at::empty({part}, like);
  if (!flat_.is_meta()) flat_.zero_();  // clears the gaps between shards
  whole_ = at::empty({line.elements()}, at::TensorOptions().dtype(compute_dtype_).device(device));
  whole_bytes_ = whole_.nbytes();
  cast_ = compute_dtype_ != storage_dtype_ || flat_.device() != device;
  for (size_t i = 0; i < slots.size(); ++i) {
    Parameter& parameter = parameters_[i];
    const at::Tensor tensor = *slots[i].tensor;
    const Rows mine = rows_of(parameter.rows, ranks_, rank_);
    std::vector<int64_t> sizes = tensor.sizes().vec();
    if (!sizes.empty()) sizes[0] = mine.count;
    parameter.shard.tensor =
        flat_.narrow(0, parameter.offset, mine.count * parameter.row_elements).view(sizes).variable_data();
    if (!tensor.is_meta()) {
      const at::Tensor first = sharding::first_values(tensor, groups_);
      parameter.shard.tensor.copy_(first.dim() == 0 ? first : first.narrow(0, mine.begin, mine.count));
    }
    parameter.shard.tensor.set_requires_grad(parameter.trainable);
    parameter.leaf = slots[i].point(leaf_of(parameter, tensor.sizes()));
  }
  if (sharded() && flat_.device() == device && !device.is_cpu() && mesh::gathers_each(*groups_.gather))
    lay_gathers();
  if (sharded()) parallel::resize_storage(whole_, 0);
}

// The parts of a parameter are adjacent in the whole storage, in rank order.
void Group::lay_gathers() {
  for (const Parameter& parameter : parameters_) {
    const int64_t chunk = parameter.chunk_elements();
    if (chunk == 0) continue;
    const at::Tensor all = whole_.narrow(0, parameter.place, ranks_ * chunk),
                     part = flat_.narrow(0, parameter.offset, chunk);
    const at::Tensor mine = all.narrow(0, rank_ * chunk, chunk);
    gathers_.push_back({all, cast_ ? mine : part});
    if (!cast_) continue;
    cast_to_.push_back(mine);
    cast_from_.push_back(part);
  }
}

std::vector<sharding::Parameter> Group::parameters() const {
  std::vector<sharding::Parameter> out;
  for (const Parameter& one : parameters_) out.push_back({one.shard.name, one.leaf, {one.shard}});
  return out;
}

const Group::Arrival& Group::arrival_in(const at::Tensor& buffer) {
  const void* storage = buffer.storage().unsafeGetStorageImpl();
  for (const Arrival& known : arrivals_)
    if (known.storage == storage) return known;
  const int64_t part = flat_.numel();
  const at::Tensor all = buffer.narrow(0, 0, ranks_ * part);
  return arrivals_.emplace_back(Arrival{storage, all, cast_ ? all.narrow(0, rank_ * part, part) : flat_});
}

// Gathers a single parameter in place, because its parts are adjacent in rank order.
std::unique_ptr<Work> Group::gather() {
  if (same_ || (sharded() && whole_bytes_ == 0)) return nullptr;
  if (!sharded()) {
    whole_.copy_(flat_, /*non_blocking=*/true);
    return nullptr;
  }
  if (!gathers_.empty()) {
    at::NoGradGuard no_gradients;
    memory_->fill(whole_, whole_bytes_);
    if (cast_) at::_foreach_copy_(cast_to_, cast_from_, /*non_blocking=*/true);
    return mesh::gather_each(*groups_.gather, gathers_);
  }
  if (parameters_.size() == 1) {
    memory_->fill(whole_, whole_bytes_);
    arriving_ = &arrival_in(whole_);
  } else {
    staging_ = memory_->take(compute_dtype_, device());
    arriving_ = &arrival_in(staging_);
  }
  if (cast_) arriving_->mine.copy_(flat_, /*non_blocking=*/true);
  return groups_.gather->all_gather(arriving_->all, arriving_->mine);
}

void Group::gathered() {
  if (!staging_.defined()) return;
  memory_->fill(whole_, whole_bytes_);
  copy_out();
  memory_->give(std::exchange(staging_, {}));
}

void Group::free() {
  memory_->free(whole_);
}

// Copies the ranks' parts to the parameters, each of them contiguous.
void Group::copy_out() {
  const int64_t part = flat_.numel();
  if (!whole_.is_cpu()) {
    at::NoGradGuard no_gradients;
    for (const Parameter& parameter : parameters_) {
      const int64_t chunk = parameter.chunk_elements();
      whole_.as_strided({ranks_, chunk}, {chunk, 1}, parameter.place)
          .copy_(arriving_->all.as_strided({ranks_, chunk}, {part, 1}, parameter.offset));
    }
    return;
  }
  const size_t element = whole_.element_size();
  const char* from = static_cast<const char*>(arriving_->all.const_data_ptr());
  char* to = static_cast<char*>(whole_.mutable_data_ptr());
  for (int rank = 0; rank < ranks_; ++rank, from += part * element)
    for (const Parameter& parameter : parameters_) {
      const size_t chunk = parameter.chunk_elements() * element;
      std::memcpy(to + parameter.place * element + rank * chunk, from + parameter.offset * element, chunk);
    }
}

}  // namespace heddle::fsdp2
