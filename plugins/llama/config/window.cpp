// Sliding-window layers.
#include "window.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heddle/model/config_keys.h"

namespace heddle::llama {
namespace {

constexpr int64_t kWindow = 4096;  // default of Qwen
constexpr const char *kFull = "full_attention", *kSliding = "sliding_attention";

// Refuses a layer_types that is not a list of one word per layer.
[[noreturn]] void refuse_layer_types(const Node& types, int64_t layers) {
  model::refuse(types, "expected a list of " + std::to_string(layers) + " words, " + kFull + " or " +
                           kSliding + ", one per layer, got " + types.written() +
                           (types.is_list() ? " of " + std::to_string(types.size()) : ""));
}

void read_types_of_layers(const Node& types, ModelConfig& config) {
  if (!types.is_list()) refuse_layer_types(types, config.num_hidden_layers);
  for (const Node& type : types.items()) {
    if (type.as_text() != kFull && type.as_text() != kSliding)
      model::refuse(types,
                    "a layer of type " + type.written() + " is not built; known: " + kFull + ", " + kSliding);
    config.slides.push_back(type.as_text() == kSliding);
  }
  if (static_cast<int64_t>(types.size()) != config.num_hidden_layers)
    refuse_layer_types(types, config.num_hidden_layers);
}

bool any_slides(const ModelConfig& config) {
  return config.sliding_window > 0 &&
         std::find(config.slides.begin(), config.slides.end(), true) != config.slides.end();
}

}  // namespace

void add_window_keys(std::vector<Key>& keys, const std::string& types) {
  keys.push_back({{"sliding_window", "int or null", "4096", "1..2^28",
                   "Sliding-window size in tokens, including the current token.", ""},
                  types});
  keys.push_back({{"use_sliding_window", "bool", "false", "", "Enable the sliding window.", ""}, types});
  keys.push_back({{"max_window_layers", "int", "28", "",
                   "First layer with a sliding window. qwen2_moe: every second layer before this one has the "
                   "window. qwen3_moe: no effect, because all layers have it.",
                   ""},
                  types});
  keys.push_back({{"layer_types", "list or null", "null", "full_attention, sliding_attention",
                   "Attention type of each layer. It overrides max_window_layers.", ""},
                  types});
}

void read_used_windows(const Node& keys, ModelConfig& config, Slides slides) {
  read_windows(keys, config, kWindow, slides);
  if (model::boolean_or(keys, "use_sliding_window", false)) return;
  config.sliding_window = 0;
  config.slides.clear();
}

bool slides_at_the_end(int64_t layer, const Node& keys) {
  return layer >= model::integer_or(keys, "max_window_layers", 28);
}

void read_window_of_all(const Node& keys, ModelConfig& config) {
  if (model::given(keys, "sliding_window") == nullptr) return;
  config.sliding_window = model::size_or(keys, "sliding_window", 0);
  config.slides.assign(config.num_hidden_layers, true);
}

void read_windows(const Node& keys, ModelConfig& config, int64_t window, Slides slides) {
  const Node* given = keys.find("sliding_window");
  if (given != nullptr)  // Qwen2-MoE's configuration uses 0 for no window
    window = given->is_null() || given->as_integer() == 0 ? 0 : model::size_or(keys, "sliding_window", 0);
  if (const Node* types = model::given(keys, "layer_types"))
    read_types_of_layers(*types, config);
  else
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
      config.slides.push_back(slides(layer, keys));
  config.sliding_window = window;
  if (any_slides(config)) return;
  config.sliding_window = 0;
  config.slides.clear();
}

void write_window(const ModelConfig& config, nlohmann::ordered_json& out) {
  out["sliding_window"] = nullptr;
  if (any_slides(config)) out["sliding_window"] = config.sliding_window;
}

void write_windows(const ModelConfig& config, nlohmann::ordered_json& out) {
  write_window(config, out);
  std::vector<std::string> types;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    types.emplace_back(config.window_of(layer) > 0 ? kSliding : kFull);
  out["layer_types"] = types;
}

}  // namespace heddle::llama
