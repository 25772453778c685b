// The weighed gated units of experts on the CPU, in one pass.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/nn/experts.h"

namespace heddle::model {

// Whether the kernels below take it: swiglu or clamped_swiglu, hidden has_kernel().
bool has_activation_kernel(const ExpertActivation& how, const at::Tensor& hidden);

// All has_kernel(): hidden [rows, 2 width], weights [rows] of the wide dtype, y [rows, width].
void activate_cpu(const ExpertActivation& how, const at::Tensor& hidden, const at::Tensor& weights,
                  const at::Tensor& y);

// dy [rows, width]. Fills out.hidden, out.weights and out.y.
void activate_backward_cpu(const ExpertActivation& how, const at::Tensor& dy, const at::Tensor& hidden,
                           const at::Tensor& weights, const ActivationGradients& out);

// Activates some rows of float32 in the calling thread, for swiglu and clamped_swiglu. d_y, d_hidden and
// d_weights: of the backward alone, else null.
struct ActivatedRows {
  const float *hidden, *weights;
  float* y;
  const float* d_y = nullptr;
  float *d_hidden = nullptr, *d_weights = nullptr;
};
void activate_rows(const ExpertActivation& how, const ActivatedRows& rows, int64_t count, int64_t width);

}  // namespace heddle::model
