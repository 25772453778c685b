// Keys of config.json that all types of the family read.
#pragma once

#include <vector>

#include "heddle/config/node.h"
#include "heddle/config/schema.h"
#include "model_config.h"

namespace heddle::llama {

// Keys that affect results, with transformers' default for Llama.
const std::vector<FieldInfo>& common_keys();

// Throws Error{config} for a value that transformers would compute differently.
void check_refused_keys(const Node& keys);

// Checks that the heads divide hidden_size, for types for which transformers requires it whatever head_dim
// is. Throws Error{config}.
void check_heads_divide(const Node& keys, const ModelConfig& config);

}  // namespace heddle::llama
