// Frees and reallocates the storage of parameters, on any device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>

#include "heddle/base/export.h"
#include "heddle/model/slot.h"

namespace heddle::parallel {

// Gives the storage of `alias` and all its views `bytes` uninitialised bytes; 0 frees it. Sizes and strides
// stay, as in FSDP2: views read the new bytes once they are filled. The memory comes from the device's
// allocator, so on a device it is freed and allocated in the order of the current stream.
HEDDLE_API void resize_storage(const at::Tensor& alias, size_t bytes);

// Gives slots on meta uninitialised storage on `device`: those of one dtype are adjacent in one buffer, each
// aligned to 64 bytes of 4-byte elements, so that layers of one input can be computed as one. Other slots are
// not changed.
HEDDLE_API void lay_flat(std::span<ParameterSlot* const> slots, c10::Device device);

}  // namespace heddle::parallel
