// Shared keys: heads, sliding windows, routers and experts.
#include "keys.h"

#include <algorithm>

namespace heddle::llama {
namespace {

using decoder::kFullAttention;
using decoder::kSlidingAttention;
using model::given;
using model::refuse;

constexpr int64_t kUsualWindow = 4096;  // default of Qwen
constexpr int64_t kMostExperts = 65536, kMostElements = int64_t{1} << 60;

// Refuses a layer_types that is not a list of one word per layer.
[[noreturn]] void refuse_layer_types(const Node& types, int64_t layers) {
  refuse(types, "expected a list of " + std::to_string(layers) + " words, " + kFullAttention + " or " +
                    kSlidingAttention + ", one per layer, got " + types.written() +
                    (types.is_list() ? " of " + std::to_string(types.size()) : ""));
}

std::vector<bool> read_layer_types(const Node& types, int64_t layers) {
  if (!types.is_list()) refuse_layer_types(types, layers);
  std::vector<bool> out;
  for (const Node& type : types.items()) {
    if (type.as_text() != kFullAttention && type.as_text() != kSlidingAttention)
      refuse(types, "a layer of type " + type.written() + " is not built; known: " + kFullAttention + ", " +
                        kSlidingAttention);
    out.push_back(type.as_text() == kSlidingAttention);
  }
  if (static_cast<int64_t>(types.size()) != layers) refuse_layer_types(types, layers);
  return out;
}

}  // namespace

void settle(Keys& keys) {
  keys.hidden_act = "silu";
  if (!keys.num_key_value_heads) {
    const int64_t usual = keys.usual_key_heads, heads = keys.num_attention_heads;
    keys.num_key_value_heads = usual > 0 && heads % usual == 0 ? usual : heads;
  }
  if (!keys.head_dim) keys.fill_head_dim();
  if (const int64_t padding = keys.pad_token_id.value_or(0); padding < 0 && padding >= -keys.vocab_size)
    keys.pad_token_id = padding + keys.vocab_size;
}

void settle_router(ExpertKeys& keys) {
  keys.router_aux_loss_type =
      keys.router_aux_loss_type.value_or(keys.output_router_logits ? "model" : "none");
  keys.output_router_logits = keys.router_aux_loss_type == "model";
  if (keys.router_dtype || keys.always_in_fp32) keys.router_dtype = "float32";
}

void check_heads_divide(const Node& node, const Keys& keys, const std::string& model_type) {
  if (keys.hidden_size % keys.num_attention_heads == 0) return;
  const Node* hidden = given(node, "hidden_size");
  refuse(hidden == nullptr ? node : *hidden,
         "transformers refuses a " + model_type + " whose hidden_size " + std::to_string(keys.hidden_size) +
             " is not a multiple of num_attention_heads " + std::to_string(keys.num_attention_heads),
         "set hidden_size to a multiple of num_attention_heads; head_dim may be any even number");
}

bool slides_at_the_end(int64_t layer, int64_t max_window_layers) {
  return layer >= max_window_layers;
}

void read_windows(const Node& node, Keys& keys, int64_t window, Slides slides) {
  const Node* size = node.find("sliding_window");
  if (size != nullptr)  // Qwen2-MoE's configuration uses 0 for no window
    window = size->is_null() || size->as_integer() == 0 ? 0 : model::size_or(node, "sliding_window", 0);
  std::vector<bool> with_window;
  if (const Node* types = given(node, "layer_types"))
    with_window = read_layer_types(*types, keys.num_hidden_layers);
  else
    for (int64_t layer = 0; layer < keys.num_hidden_layers; ++layer)
      with_window.push_back(slides(layer, model::integer_or(node, "max_window_layers", 28)));
  const bool any = window > 0 && std::find(with_window.begin(), with_window.end(), true) != with_window.end();
  keys.window = any ? window : 0;
  keys.slides = any ? std::move(with_window) : std::vector<bool>();
}

std::vector<Node::Entry> window_entries(const Keys& keys) {
  std::vector<Node> types;
  for (int64_t layer = 0; layer < keys.num_hidden_layers; ++layer)
    types.push_back(Node::text(keys.window_of(layer) > 0 ? kSlidingAttention : kFullAttention));
  return {{"sliding_window", keys.window > 0 ? Node::integer(keys.window) : Node()},
          {"layer_types", Node::list(std::move(types))}};
}

FieldInfo layer_types_info(const char* help) {
  return {"layer_types", "list or null", "null", "full_attention, sliding_attention", help, ""};
}

void read_used_windows(const Node& node, Keys& keys, Slides slides) {
  read_windows(node, keys, kUsualWindow, slides);
  if (model::boolean_or(node, "use_sliding_window", false)) return;
  keys.window = 0;
  keys.slides.clear();
}

std::vector<Node::Entry> used_window_entries(const Keys& keys) {
  std::vector<Node::Entry> out;
  if (keys.window > 0) out = window_entries(keys);
  out.emplace(out.begin(), "use_sliding_window", Node::boolean(keys.window > 0));
  return out;
}

std::vector<FieldInfo> used_window_table(const char* max_window_layers) {
  return {{"sliding_window", "integer or null", std::to_string(kUsualWindow), "1..2^28",
           "Sliding-window size in tokens, including the current token. No effect without "
           "use_sliding_window.",
           ""},
          {"use_sliding_window", "bool", "false", "",
           "Enable the sliding window. No effect on sequences within it.", ""},
          {"max_window_layers", "integer", "28", "", max_window_layers, ""},
          layer_types_info("Attention type of each layer. It overrides max_window_layers.")};
}

std::vector<FieldInfo> expert_name_table(const std::vector<std::string>& names) {
  std::vector<FieldInfo> out;
  for (size_t i = 1; i < names.size(); ++i)
    out.push_back({names[i], "integer or null", "null", "1..65536", "Alias of " + names[0] + ".", ""});
  return out;
}

void read_expert_names(const Node& node, ExpertKeys& keys, const std::vector<std::string>& names) {
  bool named = given(node, names.front()) != nullptr;
  for (const std::string& name : names) {
    const int64_t count = model::size_or(node, name, keys.experts, kMostExperts);
    if (named && count != keys.experts)
      refuse(*node.find(name),
             "two names of the number of experts differ: " + std::to_string(keys.experts) + " and " +
                 std::to_string(count),
             "set only one of them");
    named = named || given(node, name) != nullptr;
    keys.experts = count;
  }
  if (keys.experts_of_token > keys.experts)
    refuse(node, "num_experts_per_tok " + std::to_string(keys.experts_of_token) + " is more than the " +
                     std::to_string(keys.experts) + " experts");
  if (keys.hidden_size > kMostElements / (keys.experts * keys.expert_width))
    refuse(node, std::to_string(keys.experts) + " experts of width " + std::to_string(keys.expert_width) +
                     " have too many weights");
}

void check_groups(const Node& node, ExpertKeys& keys, const std::string& experts, int64_t best) {
  const auto at = [&](const char* key) -> const Node& {
    const Node* found = given(node, key);
    return found == nullptr ? node : *found;
  };
  const int64_t groups = keys.groups, each = keys.experts / groups;
  if (given(node, "topk_group") == nullptr) keys.top_groups = std::min(keys.top_groups, groups);
  const int64_t chosen = keys.top_groups;
  if (keys.experts % groups != 0)
    refuse(at("n_group"), experts + " " + std::to_string(keys.experts) + " is not a multiple of n_group " +
                              std::to_string(groups));
  if (chosen > groups)
    refuse(at("topk_group"),
           "topk_group " + std::to_string(chosen) + " is more than n_group " + std::to_string(groups));
  if (keys.experts_of_token > each * chosen)
    refuse(at("num_experts_per_tok"), "num_experts_per_tok " + std::to_string(keys.experts_of_token) +
                                          " is more than the " + std::to_string(each * chosen) +
                                          " experts of topk_group " + std::to_string(chosen) +
                                          " groups with " + std::to_string(each) + " each");
  if (groups > 1 && best > each)
    refuse(at("n_group"), "a group is scored by its best " + std::to_string(best) +
                              " experts, but with n_group " + std::to_string(groups) + " a group has only " +
                              std::to_string(each));
}

void check_layers(const Node& node, const std::vector<bool>& sparse, const std::string& keys) {
  if (std::find(sparse.begin(), sparse.end(), true) == sparse.end())
    refuse(node, keys + " leave no layer with experts");
}

}  // namespace heddle::llama
