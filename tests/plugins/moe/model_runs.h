// Small models of the types that have what Mixtral and Qwen have not: sinks, windows, biases of experts,
// parts of heads, correction biases.
#pragma once

#include <string>

#include "plugins/latent_runs.h"

namespace heddle::tests {

// Sinks, windows in turn, yarn, biases everywhere, a clamped activation; eight experts, three a token.
inline Training gpt_oss() {
  Training run = four_heads("gpt_oss");
  run.model.num_hidden_layers = 3;
  run.model.qkv_bias = run.model.output_bias = run.model.sinks = true;
  run.model.sliding_window = 3;
  run.model.slides = {true, false, true};
  run.model.rope_scaling.kind = RotaryScaling::Kind::yarn;
  run.model.rope_scaling.factor = 4;
  run.model.rope_scaling.original_positions = 16;
  llama::Mixture& mixture = run.model.mixture;
  mixture.experts = 8, mixture.top_k = 3, mixture.width = 5;
  mixture.score = model::RouterRule::Score::softmax_after_topk;
  mixture.router_bias = mixture.expert_bias = true;
  mixture.activation = {model::ExpertActivation::Kind::clamped_swiglu, 1.702, 0.05, true};
  mixture.balance = {model::BalanceLoss::Form::layer, 0.05};
  return run;
}

// A router of sigmoids whose correction bias moves; half of each head is rotated.
inline Training sigmoid_model(const std::string& model_type) {
  Training run = four_heads(model_type);
  run.model.num_hidden_layers = 3;
  run.model.head_dim = 8;
  run.model.partial_rotary_factor = 0.5;
  run.model.qk_norm = model_type != "glm4_moe";
  run.model.qk_norm_of_whole = model_type == "minimax_m2";
  if (model_type != "bailing_moe")
    run.model.initializer_range = 0.1;  // scores far enough apart that rounding does not change a choice
  llama::Mixture& mixture = run.model.mixture;
  mixture.experts = 8, mixture.top_k = 3, mixture.width = 5;
  mixture.score = model::RouterRule::Score::sigmoid;
  mixture.normalise = mixture.correction = true;
  mixture.correction_rate = 0.03;
  mixture.shared_gate = false;
  if (model_type == "minimax_m2") return run;
  mixture.groups = 4, mixture.top_groups = 2, mixture.group_best = 2;
  mixture.scale = 1.5, mixture.shared_width = 10, mixture.first_sparse = 1;
  return run;
}

inline Training small_model(const std::string& model_type) {
  if (model_type == "deepseek_v3") return deepseek();
  return model_type == "gpt_oss" ? gpt_oss() : sigmoid_model(model_type);
}

}  // namespace heddle::tests
