// The keys of attention with a sliding window.
#pragma once

#include <string>
#include <vector>

#include "heddle/config/node.h"
#include "model_type.h"

namespace heddle::llama {

void add_window_keys(std::vector<Key>& keys, const std::string& types);

// Throws Error{config} where a layer would use the window.
void check_sliding_window(const Node& keys);

}  // namespace heddle::llama
