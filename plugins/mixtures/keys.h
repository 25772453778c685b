// Keys that these mixtures of experts share, and the layer descriptions built from them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/decoder/mixture_keys.h"

namespace heddle::mixtures {

inline constexpr const char *kDense = "dense", *kSparse = "sparse";

struct Keys : decoder::CommonKeys, decoder::MixtureKeys {
  bool attention_bias = false;
  // One word per layer: full_attention or sliding_attention, and dense or sparse.
  std::optional<std::vector<std::string>> layer_types, mlp_layer_types;
  decoder::RotaryKeys sliding_rotary;  // of sliding_attention layers, if they have their own

  bool slides(int64_t layer) const {
    return layer_types && (*layer_types)[static_cast<size_t>(layer)] == decoder::kSlidingAttention;
  }
  bool sparse(int64_t layer) const {
    return !mlp_layer_types || (*mlp_layer_types)[static_cast<size_t>(layer)] == kSparse;
  }
};

// Describes why the keys are invalid; empty if they are valid.
std::string complaint_of_experts(const Keys& keys);
std::string complaint_of_layers(const Keys& keys);
// Refuses transformers' auxiliary loss if it would count experts that the router does not select.
std::string complaint_of_loss(const Keys& keys);

// Returns attention with a norm per head. sliding_attention layers use sliding_rotary and this window.
decoder::Attention attention_of(const Keys& keys, int64_t layer, int64_t window);

// Returns the words for layers with and without experts, by has_experts(layer).
template <class Sparse>
std::vector<std::string> words_of(int64_t layers, Sparse has_experts) {
  std::vector<std::string> out;
  for (int64_t layer = 0; layer < layers; ++layer) out.emplace_back(has_experts(layer) ? kSparse : kDense);
  return out;
}

// Reads rope_parameters from `keys`, which has one map per layer type that occurs. `part`: fraction of a head
// that is rotated, unless the map sets it. Throws Error{config} at the key.
void read_rotary_of_types(const Node& keys, Keys& out, const std::string& model_type, double part);
Node rotary_of_types(const Keys& keys);
FieldInfo rotary_of_types_info();

// Ignores tensors of layers beyond the last, which are multi-token prediction layers.
void ignore_further_layers(const Keys& keys, decoder::Files& files);

// Adds layer_types and mlp_layer_types.
template <class Own>
void add_layer_words(model::ModelKeys<Own>& keys, bool slides = true) {
  if (slides)
    keys.field("layer_types", &Keys::layer_types, "Type of each layer: full_attention or sliding_attention.");
  keys.field("mlp_layer_types", &Keys::mlp_layer_types, "MLP type of each layer: dense or sparse (experts).")
      .rule(complaint_of_layers);
}

// Adds the keys of the router and the experts, by the names in `form`.
template <class Own>
void add_experts(model::ModelKeys<Own>& keys, decoder::MixtureForm form) {
  form.correction = true;
  decoder::add_mixture(keys, form);
  keys.rule(complaint_of_experts)
      .only("hidden_act", Node::text("silu"), "Activation function of MLPs and experts.");
}

}  // namespace heddle::mixtures
