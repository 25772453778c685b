// Common part of delta rules with any form of decay: the triangular system of a chunk, the states between
// chunks, and their gradients. On plain tensors, below autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include "lib/decoder/delta_net/delta_chunks.h"

namespace heddle::decoder {

// Products of the tokens of a chunk, with their decays. M: B * G * R.
struct DeltaProducts {
  at::Tensor scores;          // [B, G, R, N, C, C]: of queries and keys, lower triangle with diagonal
  at::Tensor system;          // of keys, without the rates; only the part below the diagonal is used
  at::Tensor q, k_in, k_out;  // [M * N, C, key]: for two reads of the state, and a write
  at::Tensor carry;           // [M, N, 1, 1], or [M, N, key, 1]: decay of the state over the chunk
};

DeltaResult delta_result(const DeltaChunks& in, const DeltaProducts& made, const at::Tensor& first);

struct DeltaProductGradients {
  at::Tensor scores,
      system;  // [B, G, R, N, C, C]; system: below the diagonal, with respect to rates * system
  at::Tensor q, k_in, k_out;  // [B, G, R, N, C, key]
  at::Tensor right;           // [B, G, R, N, C, value]: of the system's right-hand side
  at::Tensor carry;           // [M, N, key]: per row
};

// Recomputes the states.
DeltaProductGradients delta_product_gradients(const DeltaChunks& in, const DeltaProducts& made,
                                              const at::Tensor& d_out);

}  // namespace heddle::decoder
