// Sliding windows are refused where a layer would use one.
#include "window.h"

#include "heddle/model/config_keys.h"

namespace heddle::llama {

void add_window_keys(std::vector<Key>& keys, const std::string& types) {
  keys.push_back({{"sliding_window", "int or null", "null", "null where it would act",
                   "Attention of a window; refused where a layer would use it.", ""},
                  types});
  keys.push_back({{"use_sliding_window", "bool", "false", "", "Whether sliding_window acts.", ""}, types});
  keys.push_back(
      {{"max_window_layers", "int", "28", "", "Layers before this one have no window.", ""}, types});
  keys.push_back({{"layer_types", "list or null", "null", "full_attention, sliding_attention",
                   "Of each layer; sliding_attention is refused where the window acts.", ""},
                  types});
}

void check_sliding_window(const Node& keys) {
  const Node* types = model::given(keys, "layer_types");
  if (types != nullptr)
    for (const Node& type : types->items())
      if (type.as_text() != "full_attention" && type.as_text() != "sliding_attention")
        model::refuse(*types, "a layer of type " + type.written() + " is not built; known: full_attention");
  const Node* window = model::given(keys, "sliding_window");
  if (window == nullptr || !model::boolean_or(keys, "use_sliding_window", false)) return;
  bool slides = types == nullptr && model::integer_or(keys, "max_window_layers", 28) <
                                        model::integer_or(keys, "num_hidden_layers", 32);
  if (types != nullptr)
    for (const Node& type : types->items()) slides = slides || type.as_text() == "sliding_attention";
  if (slides)
    model::refuse(*window, "attention with a sliding window of " + window->written() + " is not built",
                  "set use_sliding_window: false if the sequences are shorter than the window");
}

}  // namespace heddle::llama
