// The model of NeMo AutoModel's function build_gpt2_model.
#pragma once

#include "heddle/config/node.h"
#include "lib/run/recipe/sections.h"

namespace heddle::recipe {

bool builds_gpt2(const Node& section);
// Random weights of a GPT-2 with the exact gelu, and a dropout of 0.1 of embeddings and attention's weights.
// Throws Error{config}.
ModelSection read_built_gpt2(const Node& section);

}  // namespace heddle::recipe
