// CPU kernels of layers that work row by row, each in a source of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/nn/rotary.h"

namespace heddle::model {

// of_rows [rows, width], has_kernel(); row_of int64 [tokens * k], -1: none. Returns [tokens, width], each sum
// made in fp32 (fp64 for fp64) in the order of the choices.
at::Tensor combine_rows_cpu(const at::Tensor& of_rows, const at::Tensor& row_of, int64_t tokens);

// x holds rows of weight.numel() numbers; both of one dtype, and has_kernel(). y has x's shape, root one wide
// number per row.
void rms_norm_cpu(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y,
                  const at::Tensor& root);

// dx and dw are written where they are defined; the sum over rows is taken in the order of rows.
void rms_norm_backward_cpu(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& root, const at::Tensor& dx, const at::Tensor& dw);

// Rotates every head of x by its token's angles times `direction` (1, or -1: back). x [tokens, heads *
// head_dim]: has_row_kernel().
void rotate_cpu(const at::Tensor& x, const RotaryAngles& angles, double direction);

// Whether multiply_row() supports a [m, k] times b [k, n] plus `plus`: one row of float32 on the CPU, with b
// the transpose of a contiguous matrix, as a linear layer's weight is.
bool is_row_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& plus);

// a b + plus as [1, n]; plus: undefined, [n] or [1, n]. Reads the weight once, over the intra-op threads.
at::Tensor multiply_row(const at::Tensor& a, const at::Tensor& b, const at::Tensor& plus);

// From sigmoid = sigmoid(gate): d_gate = dy up sigmoid (1 + gate (1 - sigmoid)), d_up = dy gate sigmoid. All
// [rows, width] of one dtype: dy and sigmoid has_kernel(), the others has_row_kernel().
void swiglu_backward_cpu(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up,
                         const at::Tensor& sigmoid, const at::Tensor& d_gate, const at::Tensor& d_up);

}  // namespace heddle::model
