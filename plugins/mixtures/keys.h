// What the keys of these mixtures of experts have in common, and the layers that follow from them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/decoder/family.h"

namespace heddle::mixtures {

inline constexpr const char *kDense = "dense", *kSparse = "sparse";

struct Keys : decoder::CommonKeys {
  int64_t experts = 1, experts_of_token = 1, expert_width = 1;
  double routed_scale = 1;  // of the weights of a token's experts
  bool attention_bias = false;
  // A word for each layer: full_attention or sliding_attention, dense or sparse.
  std::optional<std::vector<std::string>> layer_types, mlp_layer_types;
  decoder::RotaryKeys sliding_rotary;  // of layers that slide, where they have their own

  bool output_router_logits = false, fake_balanced_gate = false;
  double router_aux_loss_coef = 0.001, router_z_loss_coef = 0, gate_bias_update_factor = 0;
  std::optional<std::string> router_aux_loss_type, router_dtype;

  bool slides(int64_t layer) const {
    return layer_types && (*layer_types)[static_cast<size_t>(layer)] == decoder::kSlidingAttention;
  }
  bool sparse(int64_t layer) const {
    return !mlp_layer_types || (*mlp_layer_types)[static_cast<size_t>(layer)] == kSparse;
  }
};

// What is impossible; empty: nothing.
std::string complaint_of_experts(const Keys& keys);
std::string complaint_of_layers(const Keys& keys);
// Where transformers' auxiliary loss would count experts that the router does not choose.
std::string complaint_of_loss(const Keys& keys);

// A router of sigmoids with a bias that chooses, whose weights sum to routed_scale; no shared expert.
decoder::Mixture mixture_of(const Keys& keys);
// Heads with a norm of each, in layers that slide with sliding_rotary and this window.
decoder::Attention attention_of(const Keys& keys, int64_t layer, int64_t window);

// Words for layers that has_experts(layer) names.
template <class Sparse>
std::vector<std::string> words_of(int64_t layers, Sparse has_experts) {
  std::vector<std::string> out;
  for (int64_t layer = 0; layer < layers; ++layer) out.emplace_back(has_experts(layer) ? kSparse : kDense);
  return out;
}

// rope_parameters with a map for each word of layer_types, in `keys`, for those that a layer has; `part` of
// heads are rotated where a map does not say. Throws Error{config} at the key.
void read_rotary_of_types(const Node& keys, Keys& out, const std::string& model_type, double part);
Node rotary_of_types(const Keys& keys);
FieldInfo rotary_of_types_info();

// Tensors of layers after the last, which are of multi-token prediction, belong to no parameter.
void ignore_further_layers(const Keys& keys, decoder::Files& files);

// layer_types and mlp_layer_types.
template <class Own>
void add_layer_words(model::ModelKeys<Own>& keys, bool slides = true) {
  if (slides)
    keys.field("layer_types", &Keys::layer_types, "full_attention or sliding_attention for each layer.");
  keys.field("mlp_layer_types", &Keys::mlp_layer_types, "dense or sparse (experts) for each layer.")
      .rule(complaint_of_layers);
}

// What routers have beside their numbers of experts.
// in_fp32: the router's product always is.
template <class Own>
void add_router_keys(model::ModelKeys<Own>& keys, bool in_fp32) {
  keys.field("router_aux_loss_type", &Keys::router_aux_loss_type, "Auxiliary loss; null: none.",
             decoder::balance_words())
      .field("router_aux_loss_coef", &Keys::router_aux_loss_coef,
             "Its coefficient; without that loss it changes nothing.", at_least(0.0))
      .field("router_z_loss_coef", &Keys::router_z_loss_coef, "Coefficient of the router's z-loss.",
             at_least(0.0))
      .field("router_dtype", &Keys::router_dtype,
             in_fp32 ? "It changes nothing: the router's product is in fp32."
                     : "Dtype of the router's product; null: the model's.",
             OneOf{{"float32", "fp32"}})
      .field("fake_balanced_gate", &Keys::fake_balanced_gate, "For benchmarks: experts in turn.")
      .field("gate_bias_update_factor", &Keys::gate_bias_update_factor,
             "After each step the bias that chooses experts moves by so much towards even loads; in the "
             "step itself it changes nothing.",
             at_least(0.0))
      .rule(complaint_of_experts)
      .only("hidden_act", Node::text("silu"), "Activation of MLPs and experts.");
}

}  // namespace heddle::mixtures
