// Packing by rows with zeros for what is missing, and handing out the sums.
#include "gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

namespace heddle::fsdp2 {

Gradients::Gradients(Group& group, const Place& place)
    : group_(&group), ranks_(place.ranks), dtype_(place.reduce.value_or(group.compute_dtype())) {
  at::NoGradGuard no_gradients;
  Line line;
  for (Parameter& parameter : group.parameters())
    if (parameter.trainable) columns_.push_back({&parameter, line.add(parameter.chunk_elements()), {}, {}});
  elements_ = line.elements();
  part_ = elements_ + (ranks_ > 1 ? static_cast<int64_t>(columns_.size()) : 0);
  direct_ = group.same() && dtype_ == group.storage_dtype();
  if (direct_) return;

  const auto options = at::TensorOptions().device(group.device());
  sum = at::empty({part_}, options.dtype(dtype_));
  if (dtype_ != group.storage_dtype()) stored_ = at::empty({elements_}, options.dtype(group.storage_dtype()));
  const at::Tensor& home = stored_.defined() ? stored_ : sum;
  for (Column& column : columns_) {
    const at::Tensor& shard = column.parameter->shard.tensor;
    const auto view = [&](const at::Tensor& flat) {
      return flat.narrow(0, column.offset, shard.numel()).view(shard.sizes()).variable_data();
    };
    column.gradient = view(home);
    if (ranks_ == 1) column.adds = view(sum);
  }
}

void Gradients::begin() {
  summed = false;
  if (ranks_ == 1 && !direct_) {
    at::NoGradGuard no_gradients;
    sum.zero_();
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

void Gradients::widen() {
  if (dtype_ == group_->compute_dtype()) return;
  at::NoGradGuard no_gradients;
  for (Column& column : columns_) {
    at::Tensor& gradient = column.parameter->leaf.mutable_grad();
    if (gradient.defined() && gradient.scalar_type() != dtype_) gradient = gradient.to(dtype_);
  }
}

// Row chunks of the gradient go to the parts of the ranks that own them. Padding is left as it is: nobody
// reads it.
void Gradients::pack_column(const Column& column, const at::Tensor& buffer,
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

void Gradients::pack(const at::Tensor& buffer) {
  at::NoGradGuard no_gradients;
  const int64_t count = static_cast<int64_t>(columns_.size());
  const at::Tensor flags = buffer.as_strided({ranks_, count}, {part_, 1}, elements_);
  flags.fill_(1);
  for (int64_t i = 0; i < count; ++i) {
    Column& column = columns_[i];
    at::Tensor& gradient = column.parameter->leaf.mutable_grad();
    pack_column(column, buffer, gradient);
    column.had = (summed && column.had) || gradient.defined();
    if (!gradient.defined()) flags.select(1, i).zero_();
    gradient.reset();
  }
}

// Reads the flag only where this rank had no gradient itself, so a step in which all are used never waits.
bool Gradients::used(const Column& column, int64_t index) const {
  if (ranks_ == 1) return column.adds._version() != column.version;
  return column.had || sum.select(0, elements_ + index).item<double>() > 0;
}

void Gradients::place() {
  if (direct_) return;
  at::NoGradGuard no_gradients;
  if (stored_.defined()) stored_.copy_(sum.narrow(0, 0, elements_));
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

}  // namespace heddle::fsdp2
