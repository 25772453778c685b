// Decay of states within chunks of tokens and its gradient, for recurrences computed by chunks.
#pragma once

#include <ATen/core/Tensor.h>

namespace heddle::decoder {

// Masks of documents; undefined: each row is one document. All are bool. Dims: B rows, N chunks of C tokens.
struct ChunkMarks {
  at::Tensor same;     // [B, 1, 1, N, C, C]: tokens i and j are in the same document
  at::Tensor reads;    // [B, 1, 1, N, C]: the document started before the chunk
  at::Tensor writes;   // [B, 1, 1, N, C]: the document continues to the chunk's end
  at::Tensor carries;  // [B, 1, 1, N]: one document spans the whole chunk
};

// R heads share each of G groups. M: B * G * R.
struct ChunkDecays {
  at::Tensor pairs;        // [B, G, R, N, C, C]: from token j to a later token i, else 0
  at::Tensor read, write;  // [B, G, R, N, C]: from the start of the chunk, and to its end
  at::Tensor carry;        // [M, N, 1, 1]: over the whole chunk
};

// decay [B, G, R, N, C]: logarithm of each token's decay, at most 0.
ChunkDecays decays_of(const at::Tensor& decay, const ChunkMarks& marks);

// Gradients of the logarithms of ChunkDecays: pairs, read and write in its shapes, carry [M, N].
struct DecayGradients {
  at::Tensor pairs, read, write, carry;
};

// Returns the gradient of `decay`. A token's decay affects the pairs around it, the reads from it on, the
// writes before it, and the whole chunk. Only affected terms are summed, so small gradients are exact.
at::Tensor gradient_of_decays(const DecayGradients& gradients);

}  // namespace heddle::decoder
