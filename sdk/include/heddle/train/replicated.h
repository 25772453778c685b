// Matrix products and norms for updates that every replica computes itself.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"

// On the CPU, results are bitwise equal on all processors, whatever their instruction set, so that replicas
// on different hosts stay equal. No function records autograd.

namespace heddle::train {

// Returns a [m, k] times b [k, n]. Accumulates in fp64 for fp64 and in fp32 for other dtypes. On the CPU
// about half as fast as model::matrix_product().
HEDDLE_API at::Tensor replicated_product(const at::Tensor& a, const at::Tensor& b);

// Returns the Euclidean norm of all elements, [1] in the tensor's dtype.
HEDDLE_API at::Tensor replicated_norm(const at::Tensor& tensor);

}  // namespace heddle::train
