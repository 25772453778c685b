// The weighed gated unit of experts on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/nn/experts.h"

namespace heddle::model {

// All has_kernel(), hidden [rows, 2 width], the gate before the up; weights [rows] of the wide dtype.

// silu [rows, width] = silu(gate), becomes silu * up * weight.
void weigh_swiglu_cpu(const at::Tensor& hidden, const at::Tensor& weights, const at::Tensor& silu);

// Fills out.hidden, out.weights and out.y; sigmoid = sigmoid(gate) of the wide dtype, which out.y may be.
void weighed_swiglu_backward_cpu(const at::Tensor& dy, const at::Tensor& hidden, const at::Tensor& weights,
                                 const at::Tensor& sigmoid, const ActivationGradients& out);

}  // namespace heddle::model
