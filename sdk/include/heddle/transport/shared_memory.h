// Tensors in memory that the ranks of one machine share.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"
#include "heddle/mesh/communicator.h"

namespace heddle::mesh {

// As at::empty, for long-lived tensors that are gathered, scattered or reduced repeatedly: flat shards,
// gradient buffers, buckets. If the group's ranks share memory, the others read such a tensor (and any view
// of it) in place instead of a copy; results have the same bits. Otherwise, on a device, without free memory
// and for few bytes it is an ordinary tensor. Not a collective: each rank may call it or not. Its storage
// cannot be resized. Work::wait() on such a tensor returns once the others have read it.
HEDDLE_API at::Tensor shared_empty(const Communicator& group, at::IntArrayRef sizes,
                                   const at::TensorOptions& options);

}  // namespace heddle::mesh
