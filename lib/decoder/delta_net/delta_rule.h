// Gated delta rule as one autograd node: gates, normalized queries and keys, documents.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/base/export.h"
#include "lib/decoder/recurrence/short_convolution.h"

namespace heddle::decoder {

// The number of value heads is a multiple of that of query and key heads; neighbours share a key head.
struct DeltaHeads {
  int64_t key_heads = 1, value_heads = 1;  // of this rank
  int64_t key = 1, value = 1;              // widths of keys and values
  bool channels = false;                   // a decay per row of a state (Kimi Delta Attention)
  double lowest = 0;                       // if below 0: decays are exp(lowest * sigmoid(...)) (Kimi K3)
  int64_t decays() const { return channels ? key : 1; }  // per value head
};

struct DeltaInputs {
  at::Tensor q, k;   // [tokens, key_heads * key]
  at::Tensor v;      // [tokens, value_heads * value]
  at::Tensor a;      // [tokens, value_heads * decays]
  at::Tensor b;      // [tokens, value_heads]
  at::Tensor a_log;  // [value_heads]
  at::Tensor bias;   // [value_heads * decays]: dt_bias
};

// Tokens per chunk.
inline constexpr int64_t kDeltaChunk = 64;

// The rule of delta_chunks.h. q and k are divided by their norms (sqrt(sum of squares + 1e-6)), and q by
// sqrt(key). The decay is -exp(a_log) * softplus(a + bias), or lowest * sigmoid(exp(a_log) * (a + bias)); the
// rate is sigmoid(b). Each document starts with a zero state. Computed in fp32 (fp64 for fp64); returns
// [tokens, value_heads * value] in v's dtype. The node keeps the inputs, and the backward recomputes the
// states.
// `state`: if defined, [value_heads, key, value], the state before the first token of one row; it is replaced
// by the state after the last token. Without gradients.
HEDDLE_API at::Tensor delta_rule(const DeltaInputs& in, const DeltaHeads& heads, const TokenRows& tokens,
                                 at::Tensor* state = nullptr);

}  // namespace heddle::decoder
