// The gated delta rule as a layer: gates, normalised queries and keys, documents; one autograd node.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"
#include "lib/decoder/recurrence/short_convolution.h"

namespace heddle::decoder {

// Heads of values are a multiple of those of queries and keys; neighbours share one of these.
struct DeltaHeads {
  int64_t key_heads = 1, value_heads = 1;  // of this rank
  int64_t key = 1, value = 1;              // their widths
  bool channels = false;  // each row of a state has a decay of its own (Kimi Delta Attention)
  double lowest = 0;      // below 0: of the logarithms of decays, which are a sigmoid times it (Kimi K3)
  int64_t decays() const { return channels ? key : 1; }  // of a head of values
};

struct DeltaInputs {
  at::Tensor q, k;   // [tokens, key_heads * key]
  at::Tensor v;      // [tokens, value_heads * value]
  at::Tensor a;      // [tokens, value_heads * decays]
  at::Tensor b;      // [tokens, value_heads]
  at::Tensor a_log;  // [value_heads]
  at::Tensor bias;   // [value_heads * decays]: dt_bias
};

// Tokens of a chunk.
inline constexpr int64_t kDeltaChunk = 64;

// The rule of delta_chunks.h with q and k divided by their lengths (sqrt(sum of squares + 1e-6)), q by
// sqrt(key) too, decay -exp(a_log) * softplus(a + bias), or lowest * sigmoid(exp(a_log) * (a + bias)), and
// rate sigmoid(b). A document begins with a state
// of zeros. All in fp32 (fp64 for fp64); returns [tokens, value_heads * value] in v's dtype. The node keeps
// the inputs, and computes the states again in the backward.
// `state`: where defined, [value_heads, key, value], the state before the first token of one row, which
// becomes the state after the last; without gradients.
HEDDLE_API at::Tensor delta_rule(const DeltaInputs& in, const DeltaHeads& heads, const TokenRows& tokens,
                                 at::Tensor* state = nullptr);

}  // namespace heddle::decoder
