// Sums of squares, the limits of the norm, and the factor that clips gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "heddle/base/export.h"
#include "heddle/train/step.h"

namespace heddle::train {

// The sum of the squares of a tensor in fp64 (fp32 gradients cannot overflow it), the same for any number of
// threads.
HEDDLE_API double sum_of_squares(const at::Tensor& tensor);

// Sums the squares of all tensors into fp64 [1] on their device: a few kernels, without a read-back. The
// tensors are of one device, and there is at least one.
HEDDLE_API at::Tensor sum_of_squares_on_device(at::TensorList tensors);

// The largest gradient norm of an update that is made: above it the norm's square is not finite in fp32, or
// the divisor that clips to max_norm (empty: no clipping).
HEDDLE_API double largest_norm(std::optional<double> max_norm);

// The argument `skip` of AdamW::update: fp32 [1] beside the norm, 1 where it is above `largest` or nan, or
// `doubts` (as GradientNorm::measure gives them) is more than 0; else 0.
HEDDLE_API at::Tensor skip_above(const at::Tensor& norm, double largest, const at::Tensor& doubts = {});

// The argument `doubts` of GradientNorm::measure: fp64 [1], 1 where a number of `loss` is not finite, else 0.
HEDDLE_API at::Tensor nonfinite_flag(const at::Tensor& loss);

// The divisor of the gradients, so that their norm becomes at most max_norm: max(1, (norm + 1e-6) /
// max_norm), fp32 [1]. torch.nn.utils.clip_grad_norm_ multiplies by the reciprocal.
HEDDLE_API at::Tensor clip_divisor(const at::Tensor& norm, double max_norm);

}  // namespace heddle::train
