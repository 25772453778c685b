// A causal convolution of few tokens for each channel, and its activation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"

namespace heddle::decoder {

// The tokens of a batch, row after row.
struct TokenRows {
  int64_t rows = 1, sequence = 1;
  at::Tensor documents = {};  // as in Batch; undefined: each row is one
};

// silu(bias[c] + sum over j < taps of weight[c, 0, taps - 1 - j] * x[t - j, c]) over the tokens of t's
// document; x [tokens, channels], weight [channels, 1, taps] as torch.nn.Conv1d has it, bias [channels] or
// undefined. Computed in fp32 (fp64 for fp64) and rounded to x's dtype. One node, which keeps x, the weight
// and the bias.
HEDDLE_API at::Tensor short_convolution(const at::Tensor& x, const at::Tensor& weight,
                                        const TokenRows& tokens, const at::Tensor& bias = {});

// The same of the next tokens of one sequence. `last`: [taps - 1, channels], the inputs before them, which
// becomes those before the tokens that follow; undefined: none. Without gradients.
HEDDLE_API at::Tensor continued_convolution(const at::Tensor& x, const at::Tensor& weight, at::Tensor& last,
                                            const at::Tensor& bias = {});

}  // namespace heddle::decoder
