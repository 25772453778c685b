// The keys of attention with a sliding window.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "heddle/config/node.h"
#include "model_type.h"

namespace heddle::llama {

// sliding_window, use_sliding_window, max_window_layers and layer_types.
void add_window_keys(std::vector<Key>& keys, const std::string& types);

// The window of all layers, or of those that layer_types names, or of those that `slides` gives where the
// keys have no layer_types. `window`: sliding_window where the key is absent; 0: none. Throws Error{config}
// at the key.
using Slides = bool (*)(int64_t layer, const Node& keys);
void read_window_of_all(const Node& keys, ModelConfig& config);
void read_windows(const Node& keys, ModelConfig& config, int64_t window, Slides slides);

// read_windows where use_sliding_window says that the window acts.
void read_used_windows(const Node& keys, ModelConfig& config, Slides slides);
// Layers from max_window_layers on: Qwen2 and Qwen3.
bool slides_at_the_end(int64_t layer, const Node& keys);

// sliding_window, null where it acts in no layer, and layer_types.
void write_window(const ModelConfig& config, nlohmann::ordered_json& out);
void write_windows(const ModelConfig& config, nlohmann::ordered_json& out);

}  // namespace heddle::llama
