// How a state decays within chunks of tokens, and the gradient of it: for rules whose states go from chunk to
// chunk.
#pragma once

#include <ATen/core/Tensor.h>

namespace heddle::decoder {

// What documents leave of states; undefined: each row is one document. All bool. Dims: B rows, N chunks of C
// tokens.
struct ChunkMarks {
  at::Tensor same;     // [B, 1, 1, N, C, C]: token j is in the document of token i
  at::Tensor reads;    // [B, 1, 1, N, C]: the document began before the chunk
  at::Tensor writes;   // [B, 1, 1, N, C]: the document goes on to the chunk's end
  at::Tensor carries;  // [B, 1, 1, N]: one document goes on through the whole chunk
};

// R heads share each of G groups. M: B * G * R.
struct ChunkDecays {
  at::Tensor pairs;        // [B, G, R, N, C, C]: from token j to a later token i, else 0
  at::Tensor read, write;  // [B, G, R, N, C]: from before the chunk, and to its end
  at::Tensor carry;        // [M, N, 1, 1]: of the whole chunk
};

// decay [B, G, R, N, C]: the logarithm of each token's, at most 0.
ChunkDecays decays_of(const at::Tensor& decay, const ChunkMarks& marks);

// Gradients of the logarithms of what ChunkDecays holds: pairs, read and write in its shapes, carry [M, N].
struct DecayGradients {
  at::Tensor pairs, read, write, carry;
};

// The gradient of `decay`. Each token's acts on every pair that it is between, on reads from it on, on writes
// before it, and on the whole chunk. Sums are of what it acts on alone, so that small gradients are exact.
at::Tensor gradient_of_decays(const DecayGradients& of);

}  // namespace heddle::decoder
