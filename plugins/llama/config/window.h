// Keys of sliding-window attention.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "heddle/config/node.h"
#include "model_type.h"

namespace heddle::llama {

// Adds sliding_window, use_sliding_window, max_window_layers and layer_types.
void add_window_keys(std::vector<Key>& keys, const std::string& types);

// Reads the window and the layers that have it: those in layer_types, or those for which `slides` returns
// true if the keys have no layer_types. `window`: default of sliding_window; 0: none. Throws Error{config} at
// the key.
using Slides = bool (*)(int64_t layer, const Node& keys);
void read_window_of_all(const Node& keys, ModelConfig& config);
void read_windows(const Node& keys, ModelConfig& config, int64_t window, Slides slides);

// Calls read_windows() if use_sliding_window is true.
void read_used_windows(const Node& keys, ModelConfig& config, Slides slides);
// Layers from max_window_layers on, as in Qwen2 and Qwen3.
bool slides_at_the_end(int64_t layer, const Node& keys);

// Writes sliding_window (null if no layer has a window) and layer_types.
void write_window(const ModelConfig& config, nlohmann::ordered_json& out);
void write_windows(const ModelConfig& config, nlohmann::ordered_json& out);

}  // namespace heddle::llama
