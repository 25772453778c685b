// Conversion of the common keys to layer descriptions, and rotary embeddings per layer type.
#include "keys.h"

#include <algorithm>
#include <utility>

namespace heddle::mixtures {
namespace {

using decoder::kFullAttention;
using decoder::kSlidingAttention;

// Returns whether the model has layers of this type.
bool has_layers(const Keys& keys, const char* type) {
  for (int64_t layer = 0; layer < keys.num_hidden_layers; ++layer)
    if (keys.slides(layer) == (type == std::string(kSlidingAttention))) return true;
  return false;
}

}  // namespace

std::string complaint_of_experts(const Keys& keys) {
  if (keys.experts_of_token <= keys.experts) return "";
  return std::to_string(keys.experts_of_token) + " experts per token are more than the " +
         std::to_string(keys.experts) + " experts of a layer";
}

std::string complaint_of_layers(const Keys& keys) {
  if (std::string complaint = decoder::complaint_of_layer_types(keys.layer_types, keys.num_hidden_layers);
      !complaint.empty())
    return complaint;
  if (!keys.mlp_layer_types) return "";
  for (const std::string& type : *keys.mlp_layer_types)
    if (type != kDense && type != kSparse)
      return "mlp_layer_types: expected dense or sparse, got '" + type + "'";
  if (static_cast<int64_t>(keys.mlp_layer_types->size()) == keys.num_hidden_layers) return "";
  return "mlp_layer_types has " + std::to_string(keys.mlp_layer_types->size()) + " words for " +
         std::to_string(keys.num_hidden_layers) + " layers";
}

std::string complaint_of_loss(const Keys& keys) {
  if (!keys.output_router_logits || keys.router_aux_loss_type) return "";
  return "output_router_logits: true selects transformers' auxiliary loss, which counts experts that this "
         "router does not select: set router_aux_loss_type: layer, or output_router_logits: "
         "false";
}

decoder::Attention attention_of(const Keys& keys, int64_t layer, int64_t window) {
  decoder::Attention out = keys.attention();
  out.qkv_bias = out.output_bias = keys.attention_bias;
  out.head_norm = decoder::Attention::HeadNorm::each_head;
  if (!keys.slides(layer)) return out;
  out.options.window = window;
  const decoder::RotaryKeys& rotary = keys.sliding_rotary;
  out.rotation = {rotary.dim(out.head_dim), rotary.theta, rotary.scaling};
  return out;
}

void read_rotary_of_types(const Node& keys, Keys& out, const std::string& model_type, double part) {
  const Node* all = model::given(keys, "rope_parameters");
  if (all != nullptr && !all->is_map()) model::refuse(*all, "expected a map, got " + all->written());
  const decoder::RotaryUse use{model_type, out.head_width(), out.max_position_embeddings, true};
  Node inner = keys;
  for (const char* key : {"rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor"})
    inner = inner.without(key);
  const std::pair<const char*, decoder::RotaryKeys*> kTypes[] = {{kFullAttention, &out.rotary},
                                                                 {kSlidingAttention, &out.sliding_rotary}};
  for (const auto& [type, rotary] : kTypes) {
    if (!has_layers(out, type)) continue;
    Node own = inner;
    if (all != nullptr) {
      const Node* map = model::given(*all, type);
      if (map == nullptr || !map->is_map())
        model::refuse(*all, "expected a map for " + std::string(type) + ", got " + all->written(),
                      "set full_attention and sliding_attention, each a map with rope_type and rope_theta");
      own = inner.with("rope_parameters", *map);
      *rotary = {.part = part};
    }
    decoder::read_rotary(own, *rotary, use);
    decoder::check_rotary(keys, *rotary, use.head_dim);
  }
}

Node rotary_of_types(const Keys& keys) {
  std::vector<Node::Entry> out;
  if (has_layers(keys, kFullAttention)) out.emplace_back(kFullAttention, rotary_map(keys.rotary, true));
  if (has_layers(keys, kSlidingAttention))
    out.emplace_back(kSlidingAttention, rotary_map(keys.sliding_rotary, true));
  return Node::map(std::move(out));
}

void ignore_further_layers(const Keys& keys, decoder::Files& files) {
  constexpr int64_t kMost = 8;
  for (int64_t i = 0; i < kMost; ++i)
    files.ignored_module("model.layers." + std::to_string(keys.num_hidden_layers + i));
}

FieldInfo rotary_of_types_info() {
  return {"rope_parameters",
          "map or null",
          "null",
          "types default, linear, llama3, yarn",
          "full_attention and sliding_attention, each a map with rope_type, rope_theta and "
          "partial_rotary_factor.",
          ""};
}

}  // namespace heddle::mixtures
