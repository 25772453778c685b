// The keys of config.json that the Llama family reads.
#pragma once

#include <vector>

#include "heddle/config/node.h"
#include "heddle/config/schema.h"

namespace heddle::llama {

// Every key whose value changes results, with transformers' default for Llama.
const std::vector<FieldInfo>& keys();

// Those of models with experts besides.
const std::vector<FieldInfo>& mixture_keys();

// Throws Error{config} for a key whose value would make transformers compute something else than heddle does.
void check_refused_keys(const Node& keys);

}  // namespace heddle::llama
