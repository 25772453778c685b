// Converts the projections of latent attention to queries, keys and values, with two autograd nodes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "heddle/base/export.h"
#include "heddle/nn/rotary.h"

namespace heddle::decoder {

// Heads of latent attention. Queries and keys have `plain` elements without positions, then `rotary` ones.
struct LatentShape {
  int64_t heads = 0;
  int64_t plain = 0, rotary = 0;  // qk_nope_head_dim, qk_rope_head_dim
  int64_t value = 0;              // v_head_dim
  bool interleaved = true;        // rotated pairs are adjacent; else halves, as in Llama
  int64_t key() const { return plain + rotary; }
};

struct LatentHeads {
  at::Tensor q, k;  // [tokens, heads * (plain + rotary)], rotated
  at::Tensor v;     // [tokens, heads * value]
};

// Splits [tokens, rank + rotary] into a contiguous [tokens, rank] and a view of the last columns [tokens,
// rotary].
HEDDLE_API std::pair<at::Tensor, at::Tensor> split_latent(at::Tensor both, int64_t rotary);

// q [tokens, heads * (plain + rotary)] is not rotated yet; it is rotated in place if no other tensor shares
// its memory. of_latent [tokens, heads * (plain + value)]: per head the plain part of the key, then the
// value. shared_key [tokens, rotary]: last part of every head's key. One pass over the memory of k and v; the
// gradient of shared_key is summed over heads in fp32. Undefined angles: no rotation.
HEDDLE_API LatentHeads assemble_heads(at::Tensor q, const at::Tensor& of_latent, const at::Tensor& shared_key,
                                      const model::RotaryAngles& angles, const LatentShape& shape);

}  // namespace heddle::decoder
