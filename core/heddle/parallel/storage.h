// Freeing and filling again the storage under parameters, on any device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "heddle/base/export.h"

namespace heddle::parallel {

// The storage of `alias` and of every view of it gets `bytes` bytes without values; 0 frees it. Sizes and
// strides stay, as in FSDP2: views read the new bytes once they are filled. The memory comes from the
// device's own allocator, so on a device it is freed and taken in the order of the current stream.
HEDDLE_API void resize_storage(const at::Tensor& alias, size_t bytes);

}  // namespace heddle::parallel
