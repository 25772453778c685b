// Exchange of tokens for heads: each rank gets the tokens of all ranks for some of the heads, and returns the
// results (Jacobs et al. 2023, DeepSpeed-Ulysses).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/mesh/communicator.h"
#include "heddle/nn/attention_core.h"

namespace heddle::context {

// x: [rows * tokens, heads * dim], all heads of this rank's tokens. Returns [rows * tokens * ranks, heads /
// ranks * dim], all tokens of this rank's heads. The number of ranks divides the heads. Recorded by autograd.
at::Tensor to_own_heads(const at::Tensor& x, const model::Heads& heads, Communicator& ranks);

// Inverse of to_own_heads().
at::Tensor to_own_tokens(const at::Tensor& x, const model::Heads& heads, Communicator& ranks);

}  // namespace heddle::context
