// The state space rule of Mamba-2 (Dao and Gu 2024) by chunks of tokens, on plain tensors, below autograd. Of
// one head, with a state S [state, width], a decay g <= 0 and a step of each token t:
//
//   S = exp(g) S + step b v^T;  out = S^T c
//
// Within a chunk this is a product of masked scores, as in attention, so that only a sum of states waits for
// the chunk before.
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
  at::Tensor last;  // [B * G * R, state, width]: the state after the last token
};

// first: the state before the first token, as `last`; undefined: zeros.
HEDDLE_API StateResult state_forward(const StateChunks& in, const at::Tensor& first = {});

struct StateGradients {
  at::Tensor c, b, v, decay, step;  // of the inputs' shapes
};

// From the gradient of `out`, for a state of zeros before the first token; the state after the last has no
// gradient. Computes the states again.
HEDDLE_API StateGradients state_backward(const StateChunks& in, const at::Tensor& d_out);

}  // namespace heddle::decoder
