// The product of one row with a matrix on the CPU: the main operation of generation.
#pragma once

#include <ATen/core/Tensor.h>

namespace heddle::model {

// Whether multiply_row() supports a [m, k] times b [k, n] plus `plus`: one row of float32 on the CPU, with b
// the transpose of a contiguous matrix, as a linear layer's weight is.
bool is_row_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& plus);

// a b + plus as [1, n]; plus: undefined, [n] or [1, n]. Reads the weight once, over the intra-op threads.
at::Tensor multiply_row(const at::Tensor& a, const at::Tensor& b, const at::Tensor& plus);

}  // namespace heddle::model
