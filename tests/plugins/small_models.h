// Models for tests of parallelism: heads that four ranks can split, and other sizes that they cannot.
#pragma once

#include <ostream>
#include <string>
#include <utility>

#include "heddle/config/node.h"
#include "heddle/train/step.h"
#include "plugins/training_world.h"

namespace heddle::tests {

// 53 tokens in the vocabulary, width 23, 21 token rows per microbatch.
inline Training four_heads(const std::string& model_type = "llama", int layers = 2) {
  Training run;
  run.model.vocab_size = 53;
  run.model.hidden_size = 14;
  run.model.intermediate_size = 23;
  run.model.num_hidden_layers = layers;
  run.model.num_attention_heads = 8;
  run.model.num_key_value_heads = 4;
  run.model.head_dim = 6;
  run.model.qkv_bias = model_type == "qwen2";
  run.model.qk_norm = model_type == "qwen3";
  run.microbatches = 4;
  return run;
}

// Eight experts, two per token, in two layers, with a balance loss; four microbatches of 21 tokens.
inline Training eight_experts(const std::string& model_type = "qwen3_moe", int64_t top_k = 2) {
  Training run = four_heads(model_type);
  run.model.qk_norm = model_type == "qwen3_moe";
  decoder::Mixture& mixture = run.model.mixture;
  mixture.router.experts = 8, mixture.router.rule.top_k = top_k, mixture.width = 5;
  mixture.router.rule.normalise = top_k > 1;
  mixture.router.balance = {model::BalanceLoss::Form::layer, 0.05};
  mixture.shared_gate = true;
  if (model_type == "qwen2_moe") mixture.shared_width = 9;
  return run;
}

// Latent attention, and a router with groups and an updated correction bias. One dense layer, then two with
// eight experts in four groups, of which a token uses two.
inline Training deepseek() {
  Training run = four_heads("deepseek_v3", 3);
  run.model.num_key_value_heads = 8;
  run.model.latent = decoder::Latent{.rank = 9, .query_rank = 11, .plain = 5, .rotary = 4, .value = 7};
  run.model.head_dim = 4;
  RouterConfig& router = run.model.mixture.router;
  router.experts = 8, run.model.mixture.width = 5, run.model.mixture.shared_width = 10;
  router.rule = {model::RouterRule::Score::sigmoid, 3, 4, 2, 2, true, 1.5};
  router.correction = true, router.correction_rate = 0.03;
  router.balance = {model::BalanceLoss::Form::sequence, 0.02};
  run.model.first_sparse = 1;
  return run;
}

// deepseek() with attention over three selected keys; two layers share a selection.
inline Training sparse_deepseek() {
  Training run = deepseek();
  run.model.latent->indexer = {.heads = 17, .head_dim = 6, .top_k = 3, .interleaved = true};
  run.model.shared_selections = {false, true, false};
  return run;
}

// Sinks, windows in every other layer, yarn, biases in all layers, a clamped activation; eight experts, three
// per token.
inline Training gpt_oss() {
  Training run = four_heads("gpt_oss", 3);
  run.model.qkv_bias = run.model.output_bias = run.model.sinks = true;
  run.model.sliding_window = 3;
  run.model.slides = {true, false, true};
  run.model.rotary.scaling = {.kind = RotaryScaling::Kind::yarn, .factor = 4, .original_positions = 16};
  decoder::Mixture& mixture = run.model.mixture;
  mixture.router.experts = 8, mixture.width = 5;
  mixture.router.rule = {model::RouterRule::Score::softmax_after_topk, 3};
  mixture.router.bias = mixture.expert_bias = true;
  mixture.activation = {model::ExpertActivation::Kind::clamped_swiglu, 1.702, 0.05, true};
  mixture.router.balance = {model::BalanceLoss::Form::layer, 0.05};
  return run;
}

// A sigmoid router with an updated correction bias, and partial rotation.
inline Training sigmoid_model(const std::string& model_type) {
  Training run = four_heads(model_type, 3);
  run.model.head_dim = 8;
  run.model.rotary.part = 0.5;
  run.model.qk_norm = model_type != "glm4_moe";
  run.model.qk_norm_of_whole = model_type == "minimax_m2";
  if (model_type != "bailing_moe")
    run.model.initializer_range = 0.1;  // separates scores enough that rounding does not change the selection
  RouterConfig& router = run.model.mixture.router;
  router.experts = 8, run.model.mixture.width = 5;
  router.rule = {.score = model::RouterRule::Score::sigmoid, .top_k = 3, .normalise = true};
  router.correction = true, router.correction_rate = 0.03;
  if (model_type == "minimax_m2") return run;
  router.rule.groups = 4, router.rule.top_groups = 2, router.rule.group_best = 2, router.rule.scale = 1.5;
  run.model.mixture.shared_width = 10, run.model.first_sparse = 1;
  return run;
}

// Sequences of four tokens, which context parallelism does not pad.
inline Training of_four_tokens(Training run) {
  run.change_batch = [](Batch& batch, int) {
    batch.tokens = batch.tokens.narrow(1, 3, 4).contiguous();
    batch.labels = batch.labels.narrow(1, 3, 4).contiguous();
  };
  return run;
}

// The first and last layers have a mixer, and an attention layer is between them.
struct MixingModel {
  const char* name;
  std::string keys;
};
inline std::ostream& operator<<(std::ostream& out, const MixingModel& model) {
  return out << model.name;
}

inline const std::string kMixingAttention =
    "num_attention_heads: 4, num_key_value_heads: 4, initializer_range: 0.15, ";

// Groups: 2 of 3 heads, 4 of one head, 1 of 6 heads, 2 of 3 heads with a norm over the group, 5 heads.
inline const MixingModel kMixing[] = {
    {"delta_net",
     "model_type: qwen3_5_text, " + kMixingAttention +
         "head_dim: 8, intermediate_size: 23, layer_types: [linear_attention, full_attention, "
         "linear_attention], linear_conv_kernel_dim: 3, linear_num_key_heads: 2, linear_num_value_heads: 6, "
         "linear_key_head_dim: 21, linear_value_head_dim: 3, num_hidden_layers: 3"},
    {"delta_net_of_single_heads",
     "model_type: qwen3_5_text, " + kMixingAttention +
         "head_dim: 8, intermediate_size: 23, layer_types: [linear_attention, full_attention], "
         "linear_conv_kernel_dim: 2, linear_num_key_heads: 4, linear_num_value_heads: 4, "
         "linear_key_head_dim: 22, linear_value_head_dim: 5, num_hidden_layers: 2"},
    {"falcon_h1",
     "model_type: falcon_h1, " + kMixingAttention +
         "head_dim: 6, intermediate_size: 23, num_hidden_layers: 2, mamba_n_groups: 1, mamba_n_heads: 6, "
         "mamba_d_head: 5, mamba_d_ssm: 30, mamba_d_state: 7, mamba_d_conv: 3, mamba_rms_norm: false, "
         "time_step_limit: [0.0, .inf]"},
    {"nemotron_h",
     "model_type: nemotron_h, " + kMixingAttention +
         "head_dim: 6, intermediate_size: 23, hybrid_override_pattern: 'M*-M', mamba_num_heads: 6, n_groups: "
         "2, mamba_head_dim: 5, ssm_state_size: 7, conv_kernel: 4, time_step_limit: [0.001, .inf]"},
    {"kimi_linear",
     "model_type: kimi_linear, num_attention_heads: 4, num_key_value_heads: 4, initializer_range: 0.15, "
     "intermediate_size: 23, layer_types: [linear_attention, full_attention, linear_attention], "
     "num_hidden_layers: 3, kv_lora_rank: 9, qk_nope_head_dim: 7, qk_rope_head_dim: 4, v_head_dim: 6, "
     "linear_head_dim: 11, linear_num_heads: 5, linear_conv_kernel_dim: 3, num_experts: 4, "
     "num_experts_per_token: 2, num_shared_experts: 1, moe_intermediate_size: 5, mlp_layer_types: [dense, "
     "sparse, dense]"},
    {"kimi_k3",
     "model_type: kimi_k3, num_attention_heads: 4, initializer_range: 0.15, intermediate_size: 23, "
     "linear_attn_config: {head_dim: 11, num_heads: 5, short_conv_kernel_size: 3, kda_layers: [1, 3], "
     "full_attn_layers: [2], use_full_rank_gate: true, gate_lower_bound: -2.0}, num_hidden_layers: 3, "
     "q_lora_rank: 8, kv_lora_rank: 9, qk_nope_head_dim: 7, qk_rope_head_dim: 4, v_head_dim: 6, num_experts: "
     "4, num_experts_per_token: 2, num_shared_experts: 1, moe_intermediate_size: 5, moe_layer_freq: 2, "
     "routed_expert_hidden_size: 6, attn_res_block_size: 2"}};

inline Training mixing(const MixingModel& model) {
  Training run = four_heads();
  run.steps = 3;
  // Elements with only rounding errors as gradients get small updates; otherwise normalized keys would
  // diverge.
  run.make_optimizer = [] {
    AdamWConfig config;
    config.eps = 1e-3;
    return train::make_adamw(config);
  };
  const auto spec = engine::read_model(
      config::read_text("{vocab_size: 53, hidden_size: 28, " + model.keys + "}", "run.yaml"), built_plugins(),
      UnknownKeys::refused);
  run.make_units = [spec](int) { return spec->make_units(at::TensorOptions(at::kMeta).dtype(at::kFloat)); };
  return run;
}

}  // namespace heddle::tests
