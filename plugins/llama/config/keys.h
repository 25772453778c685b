// The keys of config.json that all types of the family read.
#pragma once

#include <vector>

#include "heddle/config/node.h"
#include "heddle/config/schema.h"
#include "model_config.h"

namespace heddle::llama {

// Every key whose value changes results, with transformers' default for Llama.
const std::vector<FieldInfo>& common_keys();

// Throws Error{config} for a value of these keys that transformers would compute otherwise.
void check_refused_keys(const Node& keys);

// Of types whose configuration transformers refuses where the heads do not divide hidden_size, whatever
// head_dim is. Throws Error{config}.
void check_heads_divide(const Node& keys, const ModelConfig& config);

}  // namespace heddle::llama
