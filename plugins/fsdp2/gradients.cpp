// Packing of gradients into reduce buffers by rows, and placement of the sums.
#include "gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_chunk_cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>
#include <utility>

namespace heddle::fsdp2 {
namespace {

// A parameter that the model computes in a wider dtype is not reduced in a narrower one.
at::ScalarType reduce_dtype_of(const Group& group, const Place& place) {
  const at::ScalarType compute = group.compute_dtype(), policy = place.reduce.value_or(compute);
  return group.pinned() ? c10::promoteTypes(policy, compute) : policy;
}

}  // namespace

Gradients::Gradients(Group& group, const Place& place)
    : group_(&group),
      buffers_(place.buffers),
      whole_(!group.sharded() && place.groups.shards > 1),
      replicas_(whole_ ? place.groups.all : place.groups.across),
      ranks_(group.sharded() ? place.ranks() : 1),
      dtype_(reduce_dtype_of(group, place)),
      element_(c10::elementSize(dtype_)) {
  at::NoGradGuard no_gradients;
  Line line;
  for (Parameter& parameter : group.rows())
    if (parameter.trainable) columns_.push_back({&parameter, line.add(parameter.chunk_elements()), {}, {}});
  elements_ = line.elements();
  // Parts begin at multiples of 16 bytes, because NCCL moves unaligned parts in packs of 4 bytes.
  part_ = ranks_ > 1 || whole_ ? aligned(elements_ + static_cast<int64_t>(columns_.size())) : elements_;
  direct_ = group.same() && dtype_ == group.storage_dtype() && !whole_;
  if (direct_) return;

  sum_ = at::empty({part_}, at::TensorOptions().device(group.device()).dtype(dtype_));
  if (!sum_.is_meta()) sum_.zero_();  // clears the gaps between gradients
  std::memcpy(one_.data(), at::ones({1}, at::TensorOptions().dtype(dtype_)).const_data_ptr(), element_);
  moves_ = group.home() != group.device();
  if (dtype_ != group.storage_dtype() || moves_) {
    const at::Tensor& flat = group.rows().front().shard.tensor;
    stored_ = at::empty({elements_}, at::TensorOptions()
                                         .device(group.home())
                                         .dtype(group.storage_dtype())
                                         .pinned_memory(moves_ && flat.is_pinned()));
  }
  const at::Tensor& home = stored_.defined() ? stored_ : sum_;
  if (buffers_ && ranks_ > 1) buffers_->expect(sum_, part_);
  for (Column& column : columns_) {
    const at::Tensor& shard = column.parameter->shard.tensor;
    const auto view = [&](const at::Tensor& flat) {
      return flat.narrow(0, column.offset, shard.numel()).view(shard.sizes()).variable_data();
    };
    column.gradient = view(home);
    if (ranks_ == 1) column.adds = view(sum_);
  }
}

void Gradients::begin_step() {
  summed_ = false;
  if (ranks_ == 1 && !direct_) {
    at::NoGradGuard no_gradients;
    sum_.zero_();
  }
  for (Column& column : columns_) {
    at::Tensor& gradient = column.parameter->leaf.mutable_grad();
    if (column.adds.defined()) {
      gradient = column.adds;
      column.version = column.adds._version();
    } else {
      gradient.reset();
    }
  }
}

void Gradients::keep() {
  if (dtype_ == group_->compute_dtype()) return;
  at::NoGradGuard no_gradients;
  for (Column& column : columns_) {
    at::Tensor& gradient = column.parameter->leaf.mutable_grad();
    if (gradient.defined() && gradient.scalar_type() != dtype_) gradient = gradient.to(dtype_);
  }
}

std::unique_ptr<Work> Gradients::reduce() {
  if (ranks_ == 1) return nullptr;  // autograd already added the gradient
  const size_t turn = buffers_->take_turn();
  at::Tensor& input = inputs_[turn];
  if (!input.defined()) input = buffers_->input(turn, sum_, part_);
  pack(input);
  if (!std::exchange(summed_, true)) {
    adds_.reset();
    return buffers_->ranks().reduce_scatter(sum_, input);
  }
  at::Tensor& output = outputs_[turn];
  if (!output.defined()) output = buffers_->output(turn, sum_, part_);
  adds_ = output;
  return buffers_->ranks().reduce_scatter(output, input);
}

void Gradients::reduced() {
  if (adds_.defined()) sum_.add_(adds_);
}

std::unique_ptr<Work> Gradients::reduce_replicas() {
  if (whole_)
    for (size_t i = 0; i < columns_.size(); ++i)
      sum_.select(0, elements_ + static_cast<int64_t>(i)).fill_(columns_[i].had_here() ? 1 : 0);
  return replicas_ == nullptr ? nullptr : replicas_->all_reduce(sum_);
}

void Gradients::pack(const at::Tensor& buffer) {
  at::NoGradGuard no_gradients;
  if (buffer.is_cpu())
    pack_columns(static_cast<char*>(buffer.mutable_data_ptr()));
  else if (!pack_at_once(buffer))
    pack_columns_on_device(buffer);
  for (Column& column : columns_) {
    at::Tensor& gradient = column.parameter->leaf.mutable_grad();
    column.had = (summed_ && column.had) || gradient.defined();
    gradient.reset();
  }
}

// Writes the flags each time, because the next group overwrites them with gradients.
void Gradients::pack_columns(char* buffer) {
  char* flags = buffer + elements_ * element_;
  for (const Column& column : columns_) {
    const at::Tensor& gradient = column.parameter->leaf.grad();
    pack_column(column, buffer, gradient);
    for (int rank = 0; rank < ranks_; ++rank) {
      char* flag = flags + rank * part_ * element_;
      if (gradient.defined())
        std::memcpy(flag, one_.data(), element_);
      else
        std::memset(flag, 0, element_);
    }
    flags += element_;
  }
}

// Copies row chunks of the gradient to the parts of the ranks that own them. Padding is never read, so it is
// not written.
void Gradients::pack_column(const Column& column, char* buffer, const at::Tensor& gradient) const {
  const Parameter& parameter = *column.parameter;
  const size_t chunk = parameter.chunk_elements() * element_;
  if (chunk == 0) return;
  char* to = buffer + column.offset * element_;
  if (!gradient.defined()) {
    for (int rank = 0; rank < ranks_; ++rank, to += part_ * element_) std::memset(to, 0, chunk);
    return;
  }
  const at::Tensor rows =
      gradient.scalar_type() == dtype_ ? gradient.contiguous() : gradient.to(dtype_).contiguous();
  const char* from = static_cast<const char*>(rows.const_data_ptr());
  size_t left = rows.nbytes();
  for (; left > 0; to += part_ * element_) {
    const size_t count = std::min(left, chunk);
    std::memcpy(to, from, count);
    from += count;
    left -= count;
  }
}

// Packs like PyTorch's FSDP2: rows are padded to whole chunks, and the kernel casts bfloat16 to float.
bool Gradients::pack_at_once(const at::Tensor& buffer) {
  const at::Tensor first = columns_.front().parameter->leaf.grad();
  if (!first.defined()) return false;
  const bool is_cast = first.scalar_type() == at::kBFloat16 && dtype_ == at::kFloat;
  if (buffer.is_meta() || !(is_cast || first.scalar_type() == dtype_)) return false;
  if (!flags_.defined() || flags_.scalar_type() != first.scalar_type()) {
    flags_ = at::ones({ranks_, part_ - elements_}, first.options());
    gaps_ = at::zeros({ranks_ * kAlign}, first.options());
  }
  std::vector<at::Tensor> parts;
  int64_t end = 0;
  for (const Column& column : columns_) {
    const at::Tensor& gradient = column.parameter->leaf.grad();
    if (!gradient.defined() || gradient.scalar_type() != first.scalar_type() || !gradient.is_contiguous() ||
        gradient.numel() == 0)
      return false;
    const int64_t gap = column.offset - end;
    if (gap > 0) parts.push_back(gaps_.narrow(0, 0, ranks_ * gap).view({ranks_, gap}));
    parts.push_back(gradient.view({column.parameter->rows, column.parameter->row_elements}));
    end = column.offset + column.parameter->chunk_elements();
  }
  parts.push_back(flags_);
  at::Tensor out = buffer.view({ranks_, part_});
  at::_chunk_cat_out(out, parts, 0, ranks_);
  return true;
}

void Gradients::pack_columns_on_device(const at::Tensor& buffer) {
  const int64_t count = static_cast<int64_t>(columns_.size());
  const at::Tensor flags = buffer.as_strided({ranks_, count}, {part_, 1}, elements_);
  flags.fill_(1);
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor& gradient = columns_[i].parameter->leaf.grad();
    pack_column_on_device(columns_[i], buffer, gradient);
    if (!gradient.defined()) flags.select(1, i).zero_();
  }
}

void Gradients::pack_column_on_device(const Column& column, const at::Tensor& buffer,
                                      const at::Tensor& gradient) const {
  const Parameter& parameter = *column.parameter;
  const int64_t chunk = parameter.chunk_elements();
  if (chunk == 0) return;
  if (!gradient.defined()) {
    buffer.as_strided({ranks_, chunk}, {part_, 1}, column.offset).zero_();
    return;
  }
  const at::Tensor rows = gradient.reshape({parameter.rows, parameter.row_elements});
  const int64_t full = parameter.rows / parameter.chunk, rest = parameter.rows - full * parameter.chunk;
  buffer.as_strided({full, chunk}, {part_, 1}, column.offset)
      .copy_(rows.narrow(0, 0, full * parameter.chunk).view({full, chunk}));
  if (rest > 0)
    buffer
        .as_strided({rest, parameter.row_elements}, {parameter.row_elements, 1}, column.offset + full * part_)
        .copy_(rows.narrow(0, full * parameter.chunk, rest));
}

// Reads a flag only if this rank had no gradient, so a step that uses every parameter never waits.
bool Gradients::used(const Column& column, int64_t index) const {
  if (ranks_ == 1 && !whole_) return column.had_here();
  return column.had || (whole_ && column.had_here()) ||
         (!sum_.is_meta() && sum_.select(0, elements_ + index).item<double>() > 0);
}

void Gradients::place(std::span<const char>) {
  if (direct_) return;
  at::NoGradGuard no_gradients;
  if (stored_.defined()) stored_.copy_(sum_.narrow(0, 0, elements_), /*non_blocking=*/moves_);
  for (size_t i = 0; i < columns_.size(); ++i) {
    Column& column = columns_[i];
    at::Tensor& gradient = column.parameter->shard.tensor.mutable_grad();
    if (used(column, static_cast<int64_t>(i)))
      gradient = column.gradient;
    else
      gradient.reset();
    if (column.adds.defined() && !group_->same()) column.parameter->leaf.mutable_grad().reset();
  }
}

void wait_for(c10::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.getStream(device).synchronize();
}

}  // namespace heddle::fsdp2
