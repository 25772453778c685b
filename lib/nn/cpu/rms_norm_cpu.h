// RMSNorm on the CPU in one pass over each row.
#pragma once

#include <ATen/core/Tensor.h>

namespace heddle::model {

// x holds rows of weight.numel() numbers; both of one dtype, and has_kernel(). y has x's shape, root one wide
// number per row.
void rms_norm_cpu(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y,
                  const at::Tensor& root);

// dx and dw are written where they are defined; the sum over rows is taken in the order of rows.
void rms_norm_backward_cpu(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& root, const at::Tensor& dx, const at::Tensor& dw);

}  // namespace heddle::model
