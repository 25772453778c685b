// The gated delta rule (Yang, Kautz and Hatamizadeh 2024) by chunks of tokens, on plain tensors, below
// autograd. Of one head, with a state S [key, value], a decay g <= 0 and a rate beta of each token t:
//
//   S = exp(g) S;  S = S + beta k (v - S^T k)^T;  out = S^T q
//
// or with a decay of each row of the state (Kimi Delta Attention, Kimi Team 2025): S = diag(exp(g)) S.
// Within a chunk the updates of all tokens are one triangular system (the WY form, Yang et al. 2024b), so
// that only one product a chunk waits for the one before.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"
#include "lib/decoder/recurrence/chunk_decays.h"

namespace heddle::decoder {

// R heads of values share each of G heads of queries and keys. Dims: B rows, N chunks of C tokens.
struct DeltaChunks {
  at::Tensor q, k;         // [B, G, N, C, key]
  at::Tensor v;            // [B, G, R, N, C, value]
  at::Tensor decay, beta;  // [B, G, R, N, C]; of each row, decay [B, G, R, N, C, key] and C a power of two
  ChunkMarks marks = {};
};

struct DeltaResult {
  at::Tensor out;   // [B, G, R, N, C, value]
  at::Tensor last;  // [B * G * R, key, value]: the state after the last token
};

// first: the state before the first token, as `last`; undefined: zeros.
HEDDLE_API DeltaResult delta_forward(const DeltaChunks& in, const at::Tensor& first = {});

struct DeltaGradients {
  at::Tensor q, k, v, decay, beta;  // of the inputs' shapes
};

// From the gradient of `out`, for a state of zeros before the first token; the state after the last has no
// gradient. Computes the states again.
HEDDLE_API DeltaGradients delta_backward(const DeltaChunks& in, const at::Tensor& d_out);

}  // namespace heddle::decoder
