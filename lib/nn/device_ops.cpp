// One table for a process, which computes on one device.
#include "heddle/nn/device_ops.h"

#include <ATen/ops/empty.h>

namespace heddle::model {
namespace {

DeviceOps& table() {
  static DeviceOps ops;
  return ops;
}

}  // namespace

const DeviceOps& device_ops() {
  return table();
}

void set_device_ops(const DeviceOps& ops) {
  table() = ops;
}

at::Tensor sent_to(const at::Tensor& tensor, at::Device device) {
  if (!tensor.is_cpu() || !device.is_cuda()) return tensor.to(device);
  const at::Tensor pinned = at::empty(tensor.sizes(), tensor.options().pinned_memory(true));
  pinned.copy_(tensor);
  return pinned.to(device, /*non_blocking=*/true);
}

}  // namespace heddle::model
