// The keys of models with experts.
#pragma once

#include "heddle/config/node.h"
#include "model_config.h"

namespace heddle::llama {

// transformers' defaults of a model type with experts; false, and nothing is set, for another type.
bool set_mixture_defaults(ModelConfig& config);

// Throws Error{config} at the key: impossible, or one that transformers would compute otherwise.
void read_mixture(const Node& keys, ModelConfig& config);

}  // namespace heddle::llama
