// Decay of states within chunks with a decay per key channel: products of token pairs, reads and writes, and
// their gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include "lib/decoder/recurrence/chunk_decays.h"

namespace heddle::decoder {

// Dims as in chunk_decays.h. decay [B, G, R, N, C, key]: logarithms, at most 0.
struct ChannelDecays {
  at::Tensor read, write;  // [B, G, R, N, C, key]: from the start of the chunk, and to its end
  at::Tensor carry;        // [M, N, key, 1]: over the whole chunk
};

ChannelDecays channel_decays_of(const at::Tensor& decay, const ChunkMarks& marks);

// Gradients of the logarithms of ChannelDecays: read and write in its shapes, carry [M, N, key].
struct ChannelDecayGradients {
  at::Tensor read, write, carry;
};
at::Tensor gradient_of_channel_decays(const ChannelDecayGradients& gradients);

// Sums over channels d of q_i k_j exp(g) and of k_i k_j exp(g), where g is the sum of the decays of the
// tokens after j up to i. [B, G, R, N, C, C]; scores for j <= i and system for j < i, else 0. q, k [B, G, 1,
// N, C, key]; C is a power of two. A chunk is halved recursively. Between two halves, both factors, exp(g up
// to the border) and exp(g from the border on), are at most 1, so no decay overflows, and all pairs of halves
// of one size are one batched product.
struct ChannelPairs {
  at::Tensor scores, system;
};
ChannelPairs channel_pairs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& decay);

// All are [B, G, R, N, C, key]. The gradient of a decay sums only the pairs that it affects.
struct ChannelPairGradients {
  at::Tensor q, k, decay;
};
ChannelPairGradients channel_pairs_backward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& decay,
                                            const ChannelPairs& d);

}  // namespace heddle::decoder
