// Models whose layers have a state of each head, for the tests of parallelism: Mamba-2 and delta nets.
#pragma once

#include <ostream>
#include <string>

#include "heddle/config/node.h"
#include "plugins/small_models.h"

namespace heddle::tests {

// Layers that begin with a mixer; a layer of attention is between.
struct MixingModel {
  const char* name;
  std::string keys;
};
inline std::ostream& operator<<(std::ostream& out, const MixingModel& model) {
  return out << model.name;
}

inline const std::string kMixingAttention =
    "num_attention_heads: 4, num_key_value_heads: 4, initializer_range: 0.15, ";

// Groups: 2 of 3 heads, 4 of one head, 1 of 6 heads, 2 of 3 heads whose norm goes over a group, 5 heads.
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
     "sparse, dense]"}};

inline Training mixing(const MixingModel& model) {
  Training run = four_heads();
  run.steps = 3;
  // Elements whose gradients are rounding alone move little: normalised keys follow them far else.
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
