// The keys of config.json of Kimi Linear, and the layers that follow from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/decoder/family.h"

namespace heddle::kimi_linear {

struct Keys : decoder::CommonKeys {
  Keys();

  // Of latent attention.
  std::optional<int64_t> q_lora_rank;
  int64_t kv_lora_rank = 512, qk_nope_head_dim = 128, qk_rope_head_dim = 64, v_head_dim = 128;
  bool attention_bias = false;

  int64_t linear_head_dim = 128, linear_num_heads = 32, linear_conv_kernel_dim = 4;
  std::optional<std::vector<std::string>> layer_types;      // linear_attention or full_attention
  std::optional<std::vector<std::string>> mlp_layer_types;  // dense or sparse
  int64_t first_k_dense_replace = 1;

  int64_t num_experts = 256, num_experts_per_token = 8, num_shared_experts = 1, moe_intermediate_size = 1024;
  int64_t num_expert_group = 1, topk_group = 1;
  double routed_scaling_factor = 2.446;
  bool moe_renormalize = true, fake_balanced_gate = false;
};

// The layers with experts, where mlp_layer_types is not given.
void fill(Keys& keys);
// What is impossible; empty: nothing.
std::string complaint_of_attention(const Keys& keys);
std::string complaint_of_experts(const Keys& keys);

// linear_attn_config: sizes of delta attention, and which layers have it, counted from 1. layer_types wins.
model::KeyGroup<Keys> linear_attention();
// transformers' names of keys that files call otherwise; the files' names win.
model::KeyGroup<Keys> other_names();

decoder::Model model_of(const Keys& keys);

}  // namespace heddle::kimi_linear
