// Keys of Muse Glimmer's text model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/decoder/family.h"

namespace heddle::muse_glimmer {

struct Keys : decoder::CommonKeys {
  Keys();
  bool attention_bias = false;
  std::string hidden_activation = "silu";
  int64_t sliding_window = 2048;
  std::optional<std::vector<std::string>> layer_types;
  double final_logit_softcapping = 20, qk_scale_factor = 3.87, output_multiplier = 0.19611613513818404;
  double post_norm_eps = 1e-8;
  std::optional<std::vector<double>> layer_rope_theta;

  // Returns true for every fourth layer, counted from the last.
  bool is_fourth(int64_t layer) const { return (num_hidden_layers - 1 - layer) % 4 == 0; }
  bool slides(int64_t layer) const;
  bool rotates(int64_t layer) const;
};

model::ModelKeys<Keys> keys_of_text();

}  // namespace heddle::muse_glimmer
