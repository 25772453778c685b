// Mistral 4: latent attention with queries that are scaled by position, and experts with a softmax router.
#pragma once

#include <optional>
#include <string>

#include "heddle/decoder/mixture_keys.h"

namespace heddle::mistral {

struct Mistral4Keys : decoder::CommonKeys, decoder::MixtureKeys {
  Mistral4Keys();

  std::optional<int64_t> q_lora_rank = 1024;
  int64_t kv_lora_rank = 256, qk_nope_head_dim = 64, qk_rope_head_dim = 64, v_head_dim = 128;
  bool attention_bias = false, rope_interleave = true;

  int64_t n_shared_experts = 1, first_k_dense_replace = 0;
};

const decoder::Description<Mistral4Keys>& mistral4();

}  // namespace heddle::mistral
