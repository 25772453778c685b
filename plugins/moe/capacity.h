// A limit on the tokens that an expert takes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "heddle/nn/router.h"

namespace heddle::moe {

// Which tokens an expert keeps that is chosen more often than it has room.
enum class Keeps { largest_weights, first };

// ceil(tokens * top_k / experts * factor) (Megatron-Core), and at least 1.
int64_t capacity_of(int64_t tokens, int64_t top_k, int64_t experts, double factor);

// The routing without the choices that find no room: each expert keeps `most` tokens, those of the largest
// weight or the first, the earlier one of equal ones. A dropped choice is -1; weights stay as they are, so
// those of a token no longer sum to 1. On the host, or where the routing is.
model::Routing within_capacity(const model::Routing& routing, int64_t experts, int64_t most, Keeps keeps);

}  // namespace heddle::moe
