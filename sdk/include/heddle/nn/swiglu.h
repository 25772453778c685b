// The gated unit of Llama's MLP (Shazeer 2020): silu(gate) * up, as one autograd node.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"

namespace heddle::model {

// gate and up of one shape and dtype; returns the same shape.
HEDDLE_API at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace heddle::model
