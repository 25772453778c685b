// Whole rows without windows, soft caps and sinks, by what LibTorch chooses for them on a GPU: cuDNN's
// attention or flash attention.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/nn/attention_layout.h"

namespace heddle::model {

enum class Fused : int8_t { none, flash, cudnn };

// none: take attend_on_device().
Fused fused_kernel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Heads& heads,
                   const at::Tensor& documents);

struct FusedResult {
  at::Tensor out, log_sums;  // [batch * sequence, heads * value_dim]; of the kernel's own shape
};

FusedResult attend_fused(Fused kernel, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const Heads& heads);

// The gradients of q, k and v, of their shapes.
std::array<at::Tensor, 3> attend_fused_backward(Fused kernel, const at::Tensor& d_out, const at::Tensor& q,
                                                const at::Tensor& k, const at::Tensor& v,
                                                const FusedResult& result, const Heads& heads);

}  // namespace heddle::model
