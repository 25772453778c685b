// The norm of groups of heads after a gate (Mamba-2 as Nemotron-H has it).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"

namespace heddle::decoder {

// weight * normalised(x * silu(gate)): x, gate [tokens, width], weight [width]. Each run of `group` numbers,
// which divides the width, is normalised by its root mean square, in fp32 (fp64 for fp64), and rounded to x's
// dtype before it is multiplied by the weight, as transformers does. One node, which keeps x and the gate.
HEDDLE_API at::Tensor gated_group_norm(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight,
                                       int64_t group, double eps);

}  // namespace heddle::decoder
