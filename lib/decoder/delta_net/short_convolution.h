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

// silu(sum over j < taps of weight[c, 0, taps - 1 - j] * x[t - j, c]) over the tokens of t's document; x
// [tokens, channels], weight [channels, 1, taps] as torch.nn.Conv1d has it. Computed in fp32 (fp64 for fp64)
// and rounded to x's dtype. One node, which keeps x and the weight.
HEDDLE_API at::Tensor short_convolution(const at::Tensor& x, const at::Tensor& weight,
                                        const TokenRows& tokens);

}  // namespace heddle::decoder
