// Limit of the number of tokens per expert.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/nn/router.h"

namespace heddle::moe {

// Tokens that an expert keeps when more tokens select it than its capacity.
enum class Keeps { largest_weights, first };

// Returns ceil(tokens * top_k / experts * factor) (Megatron-Core), and at least 1.
int64_t capacity_of(int64_t tokens, int64_t top_k, int64_t experts, double factor);

// Returns the routing without choices beyond the capacity. Each expert keeps `most` tokens: those with the
// largest weights (the earlier token of equal weights), or the first. A dropped choice is -1. Weights are not
// renormalized, so those of a token may sum to less than 1. Works on the host or on the routing's device.
model::Routing within_capacity(const model::Routing& routing, int64_t experts, int64_t most, Keeps keeps);

}  // namespace heddle::moe
