// The fields of `strategy: megatron_fsdp`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/config/schema.h"

namespace heddle::megatron_fsdp {

// The fields and defaults of NeMo AutoModel's MegatronFSDPConfig.
struct Config {
  std::optional<std::vector<std::string>> megatron_fsdp_unit_modules;
  int64_t zero_dp_strategy = 3;
  bool init_fsdp_with_meta_device = false;
  bool grad_reduce_in_fp32 = false;
  bool preserve_fp32_weights = false;
  bool overlap_grad_reduce = true;
  bool overlap_param_gather = true;
  bool check_for_nan_in_grad = true;
  bool report_nan_in_param_grad = false;
  bool average_in_collective = false;
  bool disable_bucketing = false;
  bool calculate_per_token_loss = false;
  bool keep_fp8_transpose_cache = false;
  bool nccl_ub = false;
  bool fsdp_double_buffer = false;
  bool activation_checkpointing = false;
};

ConfigSchema<Config> schema();

}  // namespace heddle::megatron_fsdp
