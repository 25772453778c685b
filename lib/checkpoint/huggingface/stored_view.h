// A box of a tensor in files, seen with the dims of the parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"
#include "heddle/model/stored.h"

namespace heddle::checkpoint {

// `box`: elements of the part in the tensor's dims. A view of it in the parameter's dims, with the sizes in
// `common`.
HEDDLE_API at::Tensor as_parameter(const at::Tensor& box, const StoredPart& part,
                                   const stored::Common& common);

// The piece `common` of `of_whole`, a box of the parameter that begins at `offset`.
HEDDLE_API at::Tensor piece_of(const at::Tensor& of_whole, std::span<const int64_t> offset,
                               const stored::Common& common);

}  // namespace heddle::checkpoint
