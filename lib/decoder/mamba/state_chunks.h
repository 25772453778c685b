// State space rule of Mamba-2 (Dao and Gu 2024) by chunks of tokens, on plain tensors, below autograd. For
// one head with a state S [state, width], a decay g <= 0 and a step per token t:
//
//   S = exp(g) S + step b v^T;  out = S^T c
//
// Within a chunk this is a product of masked scores, as in attention, so only a sum of states depends on the
// previous chunk.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/base/export.h"
#include "lib/decoder/recurrence/chunk_decays.h"

namespace heddle::decoder {

// R heads share c and b of each of G groups. Dims: B rows, N chunks of C tokens.
struct StateChunks {
  at::Tensor c, b;         // [B, G, N, C, state]
  at::Tensor v;            // [B, G, R, N, C, width]
  at::Tensor decay, step;  // [B, G, R, N, C]
  ChunkMarks marks = {};
};

struct StateResult {
  at::Tensor out;   // [B, G, R, N, C, width]
  at::Tensor last;  // [B * G * R, state, width]: state after the last token
};

// first: state before the first token, in the shape of `last`; undefined: zeros.
HEDDLE_API StateResult state_forward(const StateChunks& in, const at::Tensor& first = {});

struct StateGradients {
  at::Tensor c, b, v, decay, step;  // in the shapes of the inputs
};

// Computes the gradients from that of `out`, for a zero state before the first token; the state after the
// last token has no gradient. Recomputes the states.
HEDDLE_API StateGradients state_backward(const StateChunks& in, const at::Tensor& d_out);

}  // namespace heddle::decoder
