// The fields of the block `moe:`.
#pragma once

#include <optional>

#include "heddle/config/common_fields.h"
#include "heddle/config/schema.h"

namespace heddle::moe {

// The fields and defaults of NeMo AutoModel's MoEParallelizerConfig.
struct Config {
  bool ignore_router_for_ac = true;
  bool reshard_after_forward = false;
  DTypeWord lm_head_precision;
  bool wrap_outer_model = true;
  std::optional<MixedPrecision> mp_policy;
};

inline ConfigSchema<Config> schema() {
  return ConfigSchema<Config>()
      .field("ignore_router_for_ac", &Config::ignore_router_for_ac,
             "Activation checkpointing keeps the router's choice and does not run it again.")
      .field("reshard_after_forward", &Config::reshard_after_forward,
             "Free whole parameters after forward; the strategy's own reshard_after_forward wins.")
      .field("lm_head_precision", &Config::lm_head_precision, "float32: the head computes in float32.")
      .field("wrap_outer_model", &Config::wrap_outer_model, "The outer model is a unit too.")
      .field("mp_policy", &Config::mp_policy, "Mixed precision of these units; null: the strategy's.");
}

}  // namespace heddle::moe
