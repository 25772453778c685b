// What delta rules of all forms of decay share: the triangular system of a chunk, the states from chunk to
// chunk, and their gradients. On plain tensors, below autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include "lib/decoder/delta_net/delta_chunks.h"

namespace heddle::decoder {

// Products of tokens of a chunk, with their decays. M: B * G * R.
struct DeltaProducts {
  at::Tensor scores;          // [B, G, R, N, C, C]: of queries and keys, from the diagonal down
  at::Tensor system;          // of keys, without the rates; what is not below the diagonal does not count
  at::Tensor q, k_in, k_out;  // [M * N, C, key]: for reading the state, twice, and for writing it
  at::Tensor carry;           // [M, N, 1, 1], or [M, N, key, 1]: what is left of a state after the chunk
};

DeltaResult delta_result(const DeltaChunks& in, const DeltaProducts& made, const at::Tensor& first);

struct DeltaProductGradients {
  at::Tensor scores,
      system;  // [B, G, R, N, C, C]; system: below the diagonal, with respect to rates times it
  at::Tensor q, k_in, k_out;  // [B, G, R, N, C, key]
  at::Tensor right;           // [B, G, R, N, C, value]: of the system's right side
  at::Tensor carry;           // [M, N, key]: of each row
};

// Computes the states again.
DeltaProductGradients delta_product_gradients(const DeltaChunks& in, const DeltaProducts& made,
                                              const at::Tensor& d_out);

}  // namespace heddle::decoder
