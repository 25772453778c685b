// heddle's kernels for the layers (heddle/nn/device_ops.h).
#pragma once

namespace heddle::nccl {

// Registers the kernels for the current device.
void offer_device_ops();

}  // namespace heddle::nccl
