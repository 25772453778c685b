// ulysses: every rank gets all tokens of some of the heads, and returns the results (Jacobs et al.
// 2023, DeepSpeed-Ulysses).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/mesh/communicator.h"
#include "heddle/nn/attention_core.h"

namespace heddle::context {

// x [rows * tokens, heads * dim] of this rank's tokens (Cut::contiguous); returns all tokens of this rank's
// heads, [rows * tokens * ranks, heads / ranks * dim]. Recorded by autograd. Throws Error{config} where the
// ranks do not divide the heads. dim: head_dim, or value_dim() for values.
at::Tensor to_own_heads(const at::Tensor& x, const model::Heads& heads, int64_t dim, Communicator& ranks);

// The inverse.
at::Tensor to_own_tokens(const at::Tensor& x, const model::Heads& heads, Communicator& ranks);

}  // namespace heddle::context
