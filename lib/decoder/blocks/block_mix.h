// Weighted sum of block residuals (attention residuals, Kimi K3) as one autograd node.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "heddle/base/export.h"

namespace heddle::decoder {

// values: at least one tensor [tokens, width], all of one dtype; norm [width], proj [1, width]. Returns sum_j
// p_j v_j [tokens, width] in the dtype of the values, where p is, per token, the softmax over j of proj .
// (norm * v_j / sqrt(mean(v_j^2) + eps)). Computed in fp32 (fp64 for fp64) and rounded once. The node keeps
// the values.
HEDDLE_API at::Tensor block_mix(std::span<const at::Tensor> values, const at::Tensor& norm,
                                const at::Tensor& proj, double eps);

}  // namespace heddle::decoder
