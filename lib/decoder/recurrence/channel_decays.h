// How a state decays within chunks of tokens where each of its rows (a channel of keys) has a decay of its
// own: products of pairs of tokens, reads and writes, and their gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include "lib/decoder/recurrence/chunk_decays.h"

namespace heddle::decoder {

// Dims as in chunk_decays.h, decay [B, G, R, N, C, key]: the logarithms, at most 0.
struct ChannelDecays {
  at::Tensor read, write;  // [B, G, R, N, C, key]: from before the chunk, and to its end
  at::Tensor carry;        // [M, N, key, 1]: of the whole chunk
};

ChannelDecays channel_decays_of(const at::Tensor& decay, const ChunkMarks& marks);

// The gradient of `decay` from those of the logarithms of what ChannelDecays holds: read and write in its
// shapes, carry [M, N, key].
struct ChannelDecayGradients {
  at::Tensor read, write, carry;
};
at::Tensor gradient_of_channel_decays(const ChannelDecayGradients& of);

// Sums over channels d of q_i k_j exp(g) and of k_i k_j exp(g), where g is the sum of the decays of the
// tokens behind j up to i. [B, G, R, N, C, C]; scores for j <= i and system for j < i, else 0. q, k [B, G, 1,
// N, C, key]; C is a power of two. A chunk is halved until tokens are alone: between two halves both factors
// exp(g up to the border) and exp(g from the border on) are at most 1, so that nothing overflows whatever
// decays are, and all pairs of halves of one size are one batched product.
struct ChannelPairs {
  at::Tensor scores, system;
};
ChannelPairs channel_pairs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& decay);

// All [B, G, R, N, C, key]. A decay's gradient is the sum over the pairs that it acts on alone.
struct ChannelPairGradients {
  at::Tensor q, k, decay;
};
ChannelPairGradients channel_pairs_backward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& decay,
                                            const ChannelPairs& d);

}  // namespace heddle::decoder
