// The rotation of heads on the CPU, in one pass.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/model/rotary.h"

namespace heddle::model {

// y = x with every head turned by its token's angles times `direction` (1, or -1: back). x [tokens, heads *
// head_dim] and y: has_kernel().
void rotate_cpu(const at::Tensor& x, const RotaryAngles& angles, double direction, const at::Tensor& y);

}  // namespace heddle::model
