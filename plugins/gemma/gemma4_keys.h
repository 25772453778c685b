// Keys of Gemma 4's text model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/decoder/family.h"

namespace heddle::gemma {

struct Gemma4Keys : decoder::CommonKeys {
  Gemma4Keys();
  bool attention_bias = false, attention_k_eq_v = false;
  std::string hidden_activation = "gelu_pytorch_tanh";
  int64_t sliding_window = 512, global_head_dim = 512;
  std::optional<int64_t> num_global_key_value_heads;
  std::optional<std::vector<std::string>> layer_types;
  std::optional<double> final_logit_softcapping;
  std::optional<std::string> use_bidirectional_attention;
  int64_t hidden_size_per_layer_input = 256, vocab_size_per_layer_input = 262144;
  int64_t num_kv_shared_layers = 0;
  bool use_double_wide_mlp = false;
  bool enable_moe_block = false;
  std::optional<int64_t> num_experts, top_k_experts, moe_intermediate_size;
  decoder::RotaryKeys sliding_rotary;

  bool slides(int64_t layer) const;
  bool shares(int64_t layer) const { return layer >= num_hidden_layers - num_kv_shared_layers; }
  // Index of the last layer before `layer` of the same type with its own keys. Empty: none.
  std::optional<int64_t> source_of(int64_t layer) const;
  int64_t heads_of_keys(bool slides) const;
  int64_t head_width_of(bool slides) const { return slides ? head_width() : global_head_dim; }
};

// Keys of the 12B model, which has no experts and no per-layer inputs.
struct Gemma4UnifiedKeys : Gemma4Keys {
  Gemma4UnifiedKeys();
};

// Returns the activation of the experts. Empty: not built.
std::optional<model::ExpertActivation::Kind> expert_activation(const std::string& word);

model::ModelKeys<Gemma4Keys> gemma4_keys();
model::ModelKeys<Gemma4UnifiedKeys> gemma4_unified_keys();

}  // namespace heddle::gemma
