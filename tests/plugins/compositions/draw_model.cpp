// Models of every type, two to five layers deep.
#include "plugins/compositions/draw.h"

namespace heddle::tests {
namespace {

// Keys that one type of mixture needs in addition to the common keys.
struct Mixture {
  const char* model_type;
  const char* keys;
};

constexpr Mixture kMixtures[] = {
    {"mixtral", ""},
    {"olmoe", ", norm_topk_prob: true"},
    {"qwen2_moe", ", moe_intermediate_size: 10, shared_expert_intermediate_size: 14"},
    {"qwen3_moe", ", moe_intermediate_size: 10, head_dim: 6, mlp_only_layers: [1]"},
    {"deepseek_v2",
     ", moe_intermediate_size: 10, q_lora_rank: 9, kv_lora_rank: 7, qk_nope_head_dim: 3, qk_rope_head_dim: "
     "4, "
     "v_head_dim: 5, first_k_dense_replace: 1, n_shared_experts: 1, topk_method: greedy"},
    {"deepseek_v3",
     ", moe_intermediate_size: 10, q_lora_rank: 9, kv_lora_rank: 7, qk_nope_head_dim: 3, qk_rope_head_dim: "
     "4, "
     "v_head_dim: 5, first_k_dense_replace: 1, n_shared_experts: 1, n_group: 2, topk_group: 1, "
     "gate_bias_update_factor: 0.02"},
    {"glm_moe_dsa",
     ", moe_intermediate_size: 10, q_lora_rank: 9, kv_lora_rank: 7, qk_nope_head_dim: 3, qk_rope_head_dim: "
     "4, v_head_dim: 5, first_k_dense_replace: 1, index_topk: 4, index_n_heads: 19, index_head_dim: 6, "
     "index_topk_freq: 2"},
    {"glm4_moe",
     ", moe_intermediate_size: 10, head_dim: 8, n_group: 1, topk_group: 1, first_k_dense_replace: 1, "
     "gate_bias_update_factor: 0.02"},
    {"minimax_m2", ", head_dim: 8, rotary_dim: 4, gate_bias_update_factor: 0.02"},
    {"bailing_moe",
     ", moe_intermediate_size: 10, head_dim: 8, n_group: 2, topk_group: 1, first_k_dense_replace: 1"},
    {"gpt_oss", ", head_dim: 6, sliding_window: 5"},
};

std::string sizes(Draw& draw, int layers, bool tied, int vocabulary, bool by_sixteen) {
  const int heads = draw.of({2, 4}), width = by_sixteen ? 32 : draw.of({16, 24});
  return ", vocab_size: " + std::to_string(vocabulary) + ", hidden_size: " + std::to_string(width) +
         ", num_hidden_layers: " + std::to_string(layers) +
         ", num_attention_heads: " + std::to_string(heads) +
         ", num_key_value_heads: " + std::to_string(draw.of({2, heads})) +
         ", max_position_embeddings: 64, initializer_range: 0.15, tie_word_embeddings: " +
         (tied ? "true" : "false");
}

}  // namespace

DrawnModel draw_model(Draw& draw, bool by_sixteen) {
  DrawnModel model;
  model.experts = !by_sixteen && draw.one_in(2);
  model.layers = 2 + draw.below(4);
  const Mixture& mixture = kMixtures[draw.below(std::size(kMixtures))];
  const std::string type = model.experts ? mixture.model_type : draw.of({"llama", "qwen2", "qwen3"});
  model.tied = draw.one_in(4);
  model.vocabulary = draw.of({53, 56, 61});
  model.config = "{model_type: " + type + sizes(draw, model.layers, model.tied, model.vocabulary, by_sixteen);
  if (!model.experts)
    model.config += std::string(by_sixteen ? ", head_dim: 8" : ", head_dim: 6") +
                    ", intermediate_size: " + std::to_string(by_sixteen ? 48 : draw.of({23, 24, 26}));
  else
    model.config += ", intermediate_size: 18, num_experts: " + std::to_string(draw.of({4, 8})) +
                    ", num_experts_per_tok: " + std::to_string(draw.of({1, 2})) + mixture.keys;
  model.config += "}";
  return model;
}

}  // namespace heddle::tests
