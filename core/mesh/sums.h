// Element-wise sums and maxima over ranks, always in rank order.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>

#include "heddle/base/export.h"
#include "heddle/mesh/communicator.h"

namespace heddle::mesh {

// out[i] = parts[0][i] op parts[1][i] op ..., `count` elements of `type`; 16-bit floats are summed in fp32
// and rounded once, after an average is divided. `out` may be one of the parts. A NaN wins a maximum; an
// average of integers is rounded towards zero. Throws Error{internal} for a type that cannot be summed (bool,
// fp8, complex).
HEDDLE_API void combine(void* out, std::span<const void* const> parts, int64_t count, at::ScalarType type,
                        Reduce reduce);

}  // namespace heddle::mesh
