// Freeing and filling again the storage under parameters, on any device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>

#include "heddle/base/export.h"
#include "heddle/model/slot.h"

namespace heddle::parallel {

// The storage of `alias` and of every view of it gets `bytes` bytes without values; 0 frees it. Sizes and
// strides stay, as in FSDP2: views read the new bytes once they are filled. The memory comes from the
// device's own allocator, so on a device it is freed and taken in the order of the current stream.
HEDDLE_API void resize_storage(const at::Tensor& alias, size_t bytes);

// Gives slots on meta storage without values on `device`: those of one dtype lie one after another in one
// buffer, each on a 64-byte boundary of 4-byte elements, so that layers of one input can be computed as one.
// Other slots are left alone.
HEDDLE_API void lay_flat(std::span<ParameterSlot* const> slots, c10::Device device);

}  // namespace heddle::parallel
