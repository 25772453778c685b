// Matrix products and norms for updates that replicas compute each for themselves.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"

// On the CPU results have the same bits on every processor, whatever its instruction set, so that replicas on
// hosts with different processors stay equal. Below autograd: nothing is recorded.

namespace heddle::train {

// a [m, k] times b [k, n], summed in float64 for float64 and in float32 for other dtypes. On the CPU about
// half as fast as model::matrix_product().
HEDDLE_API at::Tensor replicated_product(const at::Tensor& a, const at::Tensor& b);

// The root of the sum of the squares of all numbers, [1] in the tensor's dtype.
HEDDLE_API at::Tensor replicated_norm(const at::Tensor& tensor);

}  // namespace heddle::train
