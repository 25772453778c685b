// Keys of Muse Glimmer: windows and rotations per layer, scales of queries and logits.
#include "keys.h"

#include <utility>

namespace heddle::muse_glimmer {
namespace {

constexpr const char* kTheta = "layer_rope_theta";

std::string complaint(const Keys& keys) {
  if (keys.hidden_size % keys.num_attention_heads != 0)
    return "hidden_size " + std::to_string(keys.hidden_size) + " is not a multiple of num_attention_heads " +
           std::to_string(keys.num_attention_heads) + ", which transformers requires";
  return decoder::complaint_of_layer_types(keys.layer_types, keys.num_hidden_layers);
}

// Reads rope_theta of each layer. Call it after the rotary embedding is read: all rotated layers share its
// base.
void read_theta(const Node& given, Keys& keys) {
  const Node* list = model::given(given, kTheta);
  if (list == nullptr) return;
  if (!list->is_list() || static_cast<int64_t>(list->size()) != keys.num_hidden_layers)
    model::refuse(*list, "expected a list with one number for each of " +
                             std::to_string(keys.num_hidden_layers) + " layers, got " + list->written());
  keys.layer_rope_theta.emplace();
  for (const Node& one : list->items()) {
    const double theta = one.as_real();
    if (theta != 0 && theta != keys.rotary.theta)
      model::refuse(one, "expected rope_theta " + Node::real(keys.rotary.theta).written() +
                             ", or 0 for no rotation, got " + one.written());
    keys.layer_rope_theta->push_back(theta);
  }
}

model::KeyGroup<Keys> theta_group() {
  model::KeyGroup<Keys> out;
  out.table = {{kTheta, "list of number or null", "null", "0 or rope_theta",
                "Rotary base of each layer. 0: no rotation. null: every fourth layer, counted from the last, "
                "has no rotation.",
                ""}};
  out.read = read_theta;
  out.write = [](const Keys& keys) -> std::vector<Node::Entry> {
    if (!keys.layer_rope_theta) return {{kTheta, Node()}};
    std::vector<Node> items;
    for (const double theta : *keys.layer_rope_theta) items.push_back(Node::real(theta));
    return {{kTheta, Node::list(std::move(items))}};
  };
  return out;
}

}  // namespace

Keys::Keys() {
  vocab_size = 202048, hidden_size = 6656, intermediate_size = 19968, num_hidden_layers = 52;
  num_attention_heads = 32, num_key_value_heads = 2, head_dim = 128, max_position_embeddings = 131072;
  rms_norm_eps = 1e-5;
}

bool Keys::slides(int64_t layer) const {
  return layer_types ? (*layer_types)[static_cast<size_t>(layer)] == decoder::kSlidingAttention
                     : !is_fourth(layer);
}

bool Keys::rotates(int64_t layer) const {
  return layer_rope_theta ? (*layer_rope_theta)[static_cast<size_t>(layer)] != 0 : !is_fourth(layer);
}

model::ModelKeys<Keys> keys_of_text() {
  auto keys = decoder::common_keys<Keys>();
  decoder::add_head_dim(keys);
  decoder::add_rms_norm(keys);
  decoder::add_rotary(keys, "muse_glimmer_text");
  decoder::add_dropout(keys);
  keys.field("attention_bias", &Keys::attention_bias, "Whether q, k, v and o have biases.")
      .field("hidden_activation", &Keys::hidden_activation, "Activation function of the MLP.",
             decoder::activation_words())
      .field("sliding_window", &Keys::sliding_window,
             "Size of the window of sliding_attention layers in tokens, including the current token.",
             decoder::kSize)
      .field("layer_types", &Keys::layer_types,
             "Type of each layer: full_attention or sliding_attention. null: every fourth layer, counted "
             "from the last, uses full attention.")
      .field("qk_scale_factor", &Keys::qk_scale_factor, "Factor of the queries, after their norm.",
             at_least(1e-30))
      .field("post_norm_eps", &Keys::post_norm_eps,
             "Epsilon added to the variance in the norms after attention and MLP.", at_least(1e-38))
      .field("output_multiplier", &Keys::output_multiplier, "Factor of the logits, before the soft cap.",
             at_least(1e-30))
      .field("final_logit_softcapping", &Keys::final_logit_softcapping,
             "Soft cap of the logits: cap * tanh(logit / cap).", at_least(1e-30))
      .rule(complaint)
      .unused("hidden_act", "hidden_activation is used instead.");
  keys.group(theta_group());
  return keys;
}

}  // namespace heddle::muse_glimmer
