// Causal depthwise convolution with few taps, and its activation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"

namespace heddle::decoder {

// Tokens of a batch, row by row.
struct TokenRows {
  int64_t rows = 1, sequence = 1;
  at::Tensor documents = {};  // as in Batch; undefined: each row is one document
};

// silu(bias[c] + sum over j < taps of weight[c, 0, taps - 1 - j] * x[t - j, c]) over the tokens of t's
// document; x [tokens, channels], weight [channels, 1, taps] as in torch.nn.Conv1d, bias [channels] or
// undefined. Computed in fp32 (fp64 for fp64) and rounded to x's dtype. One autograd node, which keeps x,
// weight and bias.
HEDDLE_API at::Tensor short_convolution(const at::Tensor& x, const at::Tensor& weight,
                                        const TokenRows& tokens, const at::Tensor& bias = {});

// short_convolution() for the next tokens of one sequence. `last`: [taps - 1, channels], the previous inputs,
// replaced by the inputs before the following tokens; undefined: none. Without gradients.
HEDDLE_API at::Tensor continued_convolution(const at::Tensor& x, const at::Tensor& weight, at::Tensor& last,
                                            const at::Tensor& bias = {});

}  // namespace heddle::decoder
