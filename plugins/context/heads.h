// Every rank gets the tokens of all of them of some of the heads, and returns the results (Jacobs et al.
// 2023, DeepSpeed-Ulysses).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/mesh/communicator.h"
#include "heddle/nn/attention_core.h"

namespace heddle::context {

// x [rows * tokens, heads * dim] of this rank's tokens, a piece of those of all ranks; returns all tokens of
// this rank's heads, [rows * tokens * ranks, heads / ranks * dim]. The ranks divide the heads. Recorded by
// autograd.
at::Tensor to_own_heads(const at::Tensor& x, const model::Heads& heads, Communicator& ranks);

// The inverse.
at::Tensor to_own_tokens(const at::Tensor& x, const model::Heads& heads, Communicator& ranks);

}  // namespace heddle::context
