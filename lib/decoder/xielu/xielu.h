// The operator of xIELU, an activation with parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"

namespace heddle::decoder {

// Returns alpha x^2 + beta x for x > 0, otherwise (beta + softplus(alpha_n)) (expm1(min(x, eps)) - x) + beta
// x, with alpha = softplus(alpha_p). x of any shape; alpha_p and alpha_n [1]; beta and eps scalars. Computed
// in fp32 (fp64 for fp64) and rounded once to the dtype of x.
HEDDLE_API at::Tensor xielu(const at::Tensor& x, const at::Tensor& alpha_p, const at::Tensor& alpha_n,
                            const at::Tensor& beta, const at::Tensor& eps);

}  // namespace heddle::decoder
