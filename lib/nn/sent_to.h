// Numbers that the host has made, on their way to a device.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace heddle::model {

// A tensor of the CPU on the device of `like`. The host does not wait for a GPU: the copy is from pinned
// memory.
inline at::Tensor sent_to(const at::Tensor& host, const at::Tensor& like) {
  if (!like.is_cuda()) return host.to(like.device());
  const at::Tensor pinned = at::empty(host.sizes(), host.options().pinned_memory(true));
  pinned.copy_(host);
  return pinned.to(like.device(), /*non_blocking=*/true);
}

}  // namespace heddle::model
