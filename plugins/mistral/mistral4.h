// Mistral 4: latent attention whose queries grow with their position, and experts behind a softmax router.
#pragma once

#include <optional>
#include <string>

#include "heddle/decoder/family.h"

namespace heddle::mistral {

struct Mistral4Keys : decoder::CommonKeys {
  Mistral4Keys();

  std::optional<int64_t> q_lora_rank = 1024;
  int64_t kv_lora_rank = 256, qk_nope_head_dim = 64, qk_rope_head_dim = 64, v_head_dim = 128;
  bool attention_bias = false, rope_interleave = true;

  int64_t n_routed_experts = 128, n_shared_experts = 1, num_experts_per_tok = 4;
  int64_t moe_intermediate_size = 2048, first_k_dense_replace = 0, n_group = 1, topk_group = 1;
  double routed_scaling_factor = 1, router_aux_loss_coef = 0.001, router_z_loss_coef = 0;
  bool norm_topk_prob = true, fake_balanced_gate = false;
  std::optional<std::string> router_aux_loss_type, router_dtype;
};

const decoder::Description<Mistral4Keys>& mistral4();

}  // namespace heddle::mistral
