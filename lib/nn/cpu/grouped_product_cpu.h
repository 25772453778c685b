// Grouped products of float32 and bfloat16 on the CPU. Numbers of rows change from step to step: oneDNN would
// prepare and keep a primitive for each, packed products prepare nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "heddle/base/export.h"

namespace heddle::model {

// Whether both matrices of a grouped product are of the kind that the kernels below take.
bool has_grouped_kernel(const at::Tensor& x, const at::Tensor& y);

// out [rows, n] = x [rows, m] times each expert's matrix: weights [experts, n, m] transposed, or [experts, m,
// n].
void grouped_product_cpu(const at::Tensor& out, const at::Tensor& x, const at::Tensor& weights,
                         std::span<const int64_t> begins, bool transposes);
// out [experts, n, m] = dy [rows, n] transposed times x [rows, m], of each expert's rows.
void grouped_weight_gradient_cpu(const at::Tensor& out, const at::Tensor& dy, const at::Tensor& x,
                                 std::span<const int64_t> begins);

// out [rows, n] (+)= a [rows, m] times b [m, n] of float32, in no dim empty: rows of out are contiguous, and
// each of a and b has a stride of 1. out shares no memory with them.
HEDDLE_API void matrix_product_cpu(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
                                   bool adds);

}  // namespace heddle::model
