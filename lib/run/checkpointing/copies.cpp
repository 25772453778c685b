// One buffer per index: every save has the same parts.
#include "lib/run/checkpointing/copies.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

namespace heddle {

at::Tensor& Copies::buffer_for(size_t place, const at::Tensor& tensor) {
  if (buffers_.size() <= place) buffers_.resize(place + 1);
  at::Tensor& buffer = buffers_[place];
  if (!buffer.defined() || buffer.sizes() != tensor.sizes() || buffer.scalar_type() != tensor.scalar_type())
    buffer =
        at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).pinned_memory(!tensor.is_cpu()));
  return buffer;
}

std::vector<checkpoint::Part> Copies::of(std::span<const checkpoint::Part> parts) {
  const at::NoGradGuard no_gradients;
  std::vector<checkpoint::Part> out(parts.begin(), parts.end());
  for (size_t i = 0; i < out.size(); ++i) {
    at::Tensor& buffer = buffer_for(i, parts[i].tensor);
    buffer.copy_(parts[i].tensor, /*non_blocking=*/true);
    out[i].tensor = buffer;
  }
  return out;
}

int64_t Copies::bytes() const {
  int64_t total = 0;
  for (const at::Tensor& buffer : buffers_) total += static_cast<int64_t>(buffer.nbytes());
  return total;
}

}  // namespace heddle
