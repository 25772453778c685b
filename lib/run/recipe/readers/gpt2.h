// The model of NeMo AutoModel's function build_gpt2_model.
#pragma once

#include "heddle/config/node.h"
#include "lib/run/recipe/sections.h"
#include "lib/run/recipe/skipped_keys.h"

namespace heddle::recipe {

bool builds_gpt2(const Node& section);
// Random weights of a GPT-2 with the exact gelu. AutoModel's has dropout, which is noted. Throws
// Error{config}.
ModelSection read_built_gpt2(const Node& section, RecipeNotes& notes);

}  // namespace heddle::recipe
