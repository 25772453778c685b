// Converts rows of tokens to chunks of heads and back, for recurrences computed by chunks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lib/decoder/recurrence/chunk_decays.h"
#include "lib/decoder/recurrence/short_convolution.h"

namespace heddle::decoder {

// Rows are zero-padded to whole chunks of `longest` tokens, or to one chunk for shorter rows. `groups` groups
// of `heads` neighbouring heads. Dims: B rows, N chunks of C tokens, G groups, R heads per group.
class RowChunks {
 public:
  // halves: the tokens per chunk are a power of two, and so is `longest`.
  RowChunks(int64_t groups, int64_t heads, const TokenRows& tokens, int64_t longest, bool halves = false);

  // [tokens, G * width] to [B, G, N, C, width], in the accumulation dtype (model::accumulation_dtype).
  at::Tensor shared(const at::Tensor& x) const;
  // [tokens, G * R * width] to [B, G, R, N, C, width].
  at::Tensor of_heads(const at::Tensor& x) const;
  // [tokens, G * R] to [B, G, R, N, C].
  at::Tensor gates(const at::Tensor& x) const { return of_heads(x).squeeze(-1); }

  // Inverse conversions, to this dtype.
  at::Tensor rows_of_shared(const at::Tensor& x, at::ScalarType dtype) const;
  at::Tensor rows_of_heads(const at::Tensor& x, at::ScalarType dtype) const;
  at::Tensor rows_of_gates(const at::Tensor& x, at::ScalarType dtype) const {
    return rows_of_heads(x.unsqueeze(-1), dtype);
  }

  // Returns masks of the batch's documents on the device of `like`; empty without documents.
  ChunkMarks marks(const at::TensorOptions& like) const;

 private:
  at::Tensor filled(const at::Tensor& x) const;  // [B, N, C, columns]
  at::Tensor cut(const at::Tensor& x, at::ScalarType dtype) const;

  int64_t groups_, heads_;
  TokenRows tokens_;
  int64_t length_, count_;
};

}  // namespace heddle::decoder
