// The backward of the gated unit on the CPU, in one pass.
#pragma once

#include <ATen/core/Tensor.h>

namespace heddle::model {

// From sigmoid = sigmoid(gate): d_gate = dy up sigmoid (1 + gate (1 - sigmoid)), d_up = dy gate sigmoid. All
// [rows, width] of one dtype: dy and sigmoid has_kernel(), the others has_row_kernel().
void swiglu_backward_cpu(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up,
                         const at::Tensor& sigmoid, const at::Tensor& d_gate, const at::Tensor& d_up);

}  // namespace heddle::model
