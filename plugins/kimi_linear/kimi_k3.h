// Text model of Kimi K3: its keys, and its interface to the plugin.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/plugin/offer.h"
#include "keys.h"

namespace heddle::kimi_linear {

struct K3Keys : Keys {
  K3Keys();

  std::string hidden_act = "situ";
  std::optional<double> activation_situ_beta = 4.0, activation_situ_linear_beta = 25.0;
  std::optional<int64_t> attn_res_block_size = 12;  // layers per residual block
  bool mla_use_output_gate = true;
  int64_t routed_expert_hidden_size = 3584, moe_layer_freq = 1;
  bool latent_moe_use_norm = true;
  std::string moe_router_activation_func = "sigmoid";
  // Keys of linear_attn_config.
  bool use_full_rank_gate = true;
  double gate_lower_bound = -5;  // 0: decays have no bound
};

void fill_k3(K3Keys& keys);  // sets the layers with experts
std::string complaint_of_k3(const K3Keys& keys);
// Reads linear_attn_config, and keys for which null differs from an absent key.
model::KeyGroup<K3Keys> k3_attention();
decoder::Model model_of_k3(const K3Keys& keys);

// Returns whether keys with the model_type kimi_linear describe the architecture of Kimi K3.
bool is_kimi_k3(const Node& keys);
std::unique_ptr<ModelSpec> read_kimi_k3(const Node& keys, UnknownKeys unknown);
void offer_kimi_k3(Offer& plugin, const std::vector<FieldInfo>& of_kimi_linear);

}  // namespace heddle::kimi_linear
