// Keys of the config.json of Falcon-H1, and the model description built from them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "heddle/decoder/family.h"

namespace heddle::falcon_h1 {

struct Keys : decoder::CommonKeys {
  Keys();

  bool attention_bias = false, mlp_bias = false, mamba_proj_bias = false, projectors_bias = false;
  std::optional<int64_t> mamba_d_ssm = 1024;  // null: mamba_expand * hidden_size
  int64_t mamba_expand = 2, mamba_n_heads = 128, mamba_n_groups = 1, mamba_d_state = 256, mamba_d_conv = 4;
  int64_t mamba_d_head = 0;  // 0: auto
  bool mamba_conv_bias = true, mamba_rms_norm = false, mamba_norm_before_gate = true;
  double shortest_step = 0, longest_step = std::numeric_limits<double>::infinity();

  double embedding_multiplier = 1, lm_head_multiplier = 1;
  double key_multiplier = 1, attention_in_multiplier = 1, attention_out_multiplier = 1;
  double ssm_in_multiplier = 1, ssm_out_multiplier = 1;
  std::optional<std::vector<double>> ssm_multipliers;  // factors of z, x, b, c and dt
  std::optional<std::vector<double>> mlp_multipliers;  // factors of gate_proj(x) and of the output

  int64_t inner() const { return mamba_d_ssm.value_or(mamba_expand * hidden_size); }
};

// Sets multipliers that are not given to 1.
void fill(Keys& keys);
// Describes why the keys are invalid; empty if they are valid.
std::string complaint_of_mamba(const Keys& keys);
std::string complaint_of_multipliers(const Keys& keys);

// Reads mamba_d_head: a number, or auto.
model::KeyGroup<Keys> head_width();

decoder::Model model_of(const Keys& keys);

}  // namespace heddle::falcon_h1
