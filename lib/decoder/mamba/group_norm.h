// Norm of groups of heads after a gate (Mamba-2 in Nemotron-H).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"

namespace heddle::decoder {

// weight * normalized(x * silu(gate)): x, gate [tokens, width], weight [width]. Each group of `group`
// elements, which divides the width, is divided by its root mean square in fp32 (fp64 for fp64) and rounded
// to x's dtype before the multiplication by the weight, as in transformers. One autograd node, which keeps x
// and the gate.
HEDDLE_API at::Tensor gated_group_norm(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight,
                                       int64_t group, double eps);

}  // namespace heddle::decoder
