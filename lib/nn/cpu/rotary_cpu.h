// The rotation of heads on the CPU, in place.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/nn/rotary.h"

namespace heddle::model {

// Rotates every head of x by its token's angles times `direction` (1, or -1: back). x [tokens, heads *
// head_dim]: has_row_kernel().
void rotate_cpu(const at::Tensor& x, const RotaryAngles& angles, double direction);

}  // namespace heddle::model
