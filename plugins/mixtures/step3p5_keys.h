// Keys of the config.json of Step-3.5, in the published spelling and in that of transformers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/config/field_types.h"
#include "keys.h"

namespace heddle::mixtures {

using Limits = std::optional<std::vector<std::optional<double>>>;

struct StepKeys : Keys {
  StepKeys();

  // Published names and transformers' names. Both have the same value after they are read.
  std::optional<int64_t> num_attention_groups;  // num_key_value_heads
  std::optional<int64_t> moe_num_experts, n_routed_experts, num_local_experts;
  std::optional<int64_t> moe_top_k, num_experts_per_tok;
  std::optional<int64_t> share_expert_dim, share_expert_dims;

  int64_t num_mtp_layers = 0;
  std::optional<int64_t> num_sliding_attention_heads;  // set when keys are read
  std::optional<double> query_pre_attn_scalar;
  std::optional<int64_t> sliding_window;
  std::optional<std::vector<bool>> use_rope_layers;
  std::optional<std::vector<std::string>> yarn_only_types;
  bool need_fp32_gate = false;
  Limits swiglu_limits, swiglu_limits_shared;

  int64_t heads(int64_t layer) const {
    return slides(layer) ? *num_sliding_attention_heads : num_attention_heads;
  }
};

// Shortens lists that are longer than the model, and fills both spellings.
void fill_step(StepKeys& keys);
// Describes why the keys are invalid; empty if they are valid.
std::string complaint_of_step(const StepKeys& keys);
// Reads attention_other_setting, moe_layers_enum and num_nextn_predict_layers.
model::KeyGroup<StepKeys> published_layers();
// Reads rope_theta and partial_rotary_factors (per layer) with rope_scaling, or rope_parameters.
model::KeyGroup<StepKeys> rotary_of_layers();

}  // namespace heddle::mixtures
