// The kernels that record their cost on meta tensors.
#pragma once

#include "heddle/nn/device_ops.h"

namespace heddle::model {

// Every member of DeviceOps, for meta tensors. For layers that are one pass on the CPU too; other layers ask
// meta_ops(), which is empty on the path of the CPU.
const DeviceOps& recorded_kernels();

}  // namespace heddle::model
