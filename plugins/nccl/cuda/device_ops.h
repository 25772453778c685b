// heddle's kernels for the layers (heddle/nn/device_ops.h).
#pragma once

namespace heddle::nccl {

// For the current device.
void offer_device_ops();

}  // namespace heddle::nccl
