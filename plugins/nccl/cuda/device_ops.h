// heddle's kernels for the layers (heddle/nn/device_ops.h).
#pragma once

namespace heddle::nccl {

// For the current device. Nothing where it has no kernels (before compute capability 8.0).
void offer_device_ops();

}  // namespace heddle::nccl
