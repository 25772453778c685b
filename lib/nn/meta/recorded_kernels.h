// The kernels that record their cost on meta tensors.
#pragma once

#include "heddle/nn/device_ops.h"

namespace heddle::model {

// Every member of DeviceOps, for meta tensors. For layers that are one pass on the CPU too; other layers ask
// meta_ops(), which is empty on the path of the CPU.
const DeviceOps& recorded_kernels();

// Whether the tensor is on the CPU, or in the dry step of a CPU.
inline bool computes_on_cpu(const at::Tensor& tensor) {
  return tensor.is_cpu() || (tensor.is_meta() && meta_ops().rms_norm == nullptr);
}

}  // namespace heddle::model
