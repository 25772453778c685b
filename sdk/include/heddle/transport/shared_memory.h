// Tensors in memory that the ranks of one machine share.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"
#include "heddle/mesh/communicator.h"

namespace heddle::mesh {

// Like at::empty, for long-lived tensors that are repeatedly gathered, scattered or reduced: flat shards,
// gradient buffers, buckets. If the group's ranks share memory, other ranks read such a tensor and its views
// in place instead of copying; results are bitwise equal. Returns an ordinary tensor on a device, for few
// bytes, without free memory, or if the ranks do not share memory. Not a collective: each rank may decide
// whether to call it. The storage cannot be resized. Work::wait() returns once the other ranks have read the
// tensor.
HEDDLE_API at::Tensor shared_empty(const Communicator& group, at::IntArrayRef sizes,
                                   const at::TensorOptions& options);

}  // namespace heddle::mesh
