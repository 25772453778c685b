// What the keys of these mixtures of experts have in common, and the layers that follow from them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/decoder/mixture_keys.h"

namespace heddle::mixtures {

inline constexpr const char *kDense = "dense", *kSparse = "sparse";

struct Keys : decoder::CommonKeys, decoder::MixtureKeys {
  bool attention_bias = false;
  // A word for each layer: full_attention or sliding_attention, dense or sparse.
  std::optional<std::vector<std::string>> layer_types, mlp_layer_types;
  decoder::RotaryKeys sliding_rotary;  // of layers that slide, where they have their own

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

// The keys of the router and the experts, by these names.
template <class Own>
void add_experts(model::ModelKeys<Own>& keys, decoder::MixtureForm form) {
  form.correction = true;
  decoder::add_mixture(keys, form);
  keys.rule(complaint_of_experts).only("hidden_act", Node::text("silu"), "Activation of MLPs and experts.");
}

}  // namespace heddle::mixtures
