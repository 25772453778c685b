// Gated delta rule (Yang, Kautz and Hatamizadeh 2024) by chunks of tokens, on plain tensors, below autograd.
// For one head with a state S [key, value], a decay g <= 0 and a rate beta per token t:
//
//   S = exp(g) S;  S = S + beta k (v - S^T k)^T;  out = S^T q
//
// or with a decay per row of the state (Kimi Delta Attention, Kimi Team 2025): S = diag(exp(g)) S.
// Within a chunk the updates of all tokens form one triangular system (the WY form, Yang et al. 2024b), so
// only one product per chunk depends on the previous chunk.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"
#include "lib/decoder/recurrence/chunk_decays.h"

namespace heddle::decoder {

// R value heads share each of G query and key heads. Dims: B rows, N chunks of C tokens.
struct DeltaChunks {
  at::Tensor q, k;         // [B, G, N, C, key]
  at::Tensor v;            // [B, G, R, N, C, value]
  at::Tensor decay, beta;  // [B, G, R, N, C]; per channel: decay [B, G, R, N, C, key] and C a power of two
  ChunkMarks marks = {};
};

struct DeltaResult {
  at::Tensor out;   // [B, G, R, N, C, value]
  at::Tensor last;  // [B * G * R, key, value]: state after the last token
};

// first: state before the first token, in the shape of `last`; undefined: zeros.
HEDDLE_API DeltaResult delta_forward(const DeltaChunks& in, const at::Tensor& first = {});

struct DeltaGradients {
  at::Tensor q, k, v, decay, beta;  // in the shapes of the inputs
};

// Computes the gradients from that of `out`, for a zero state before the first token; the state after the
// last token has no gradient. Recomputes the states.
HEDDLE_API DeltaGradients delta_backward(const DeltaChunks& in, const at::Tensor& d_out);

}  // namespace heddle::decoder
