// The rotary embedding of a Hugging Face configuration, in both spellings.
#pragma once

#include "heddle/config/node.h"
#include "model_config.h"

namespace heddle::llama {

// Sets rope_theta and rope_scaling from `rope_parameters` (new), or `rope_scaling` and `rope_theta` (old,
// which win). Throws Error{config} at the key: a type that is not built, a missing or impossible factor.
void read_rotary(const Node& keys, ModelConfig& config);

// Throws Error{config} where these values, and the heads of the whole configuration, make a frequency that is
// not a number: yarn with rope_theta 1, where transformers divides by zero.
void check_rotary(const Node& keys, const ModelConfig& config);

}  // namespace heddle::llama
