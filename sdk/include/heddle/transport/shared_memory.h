// Tensors in memory that the ranks of one machine share.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"
#include "heddle/mesh/communicator.h"

namespace heddle::mesh {

// As at::empty, for what lives long and is gathered from, scattered from or reduced again and again: flat
// shards, gradient buffers, buckets. Where the group's ranks share memory, the others read such a tensor (and
// any view of it) in place instead of a copy of it; results are the same bits. Elsewhere, on a device, where
// there is no more room and for few bytes it is an ordinary tensor. Each rank calls it for itself: it is no
// collective, and not every rank needs to. Its storage cannot be resized. Work::wait() on such a tensor
// returns once the others have read it.
HEDDLE_API at::Tensor shared_empty(const Communicator& group, at::IntArrayRef sizes,
                                   const at::TensorOptions& options);

}  // namespace heddle::mesh
