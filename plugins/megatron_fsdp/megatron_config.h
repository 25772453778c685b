// The fields of `strategy: megatron`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/config/common_fields.h"
#include "heddle/config/schema.h"

namespace heddle::megatron_fsdp {

// The fields and defaults of Megatron-Core's DistributedDataParallelConfig.
struct MegatronConfig {
  bool grad_reduce_in_fp32 = false;
  bool overlap_grad_reduce = false;
  bool overlap_param_gather = false;
  bool align_param_gather = false;
  bool use_distributed_optimizer = false;
  int64_t num_distributed_optimizer_instances = 1;
  bool check_for_nan_in_grad = false;
  bool check_for_large_grads = false;
  std::optional<int64_t> bucket_size;
  std::optional<int64_t> num_buckets;
  bool pad_buckets_for_high_nccl_busbw = false;
  bool reduce_scatter_with_fp32_accumulation = false;
  std::vector<std::string> param_name_patterns_for_fp32_local_accumulation;
  bool average_in_collective = false;
  bool calculate_per_token_loss = false;
  bool gradient_reduce_div_fusion = true;
  bool delay_wgrad_compute = false;
  bool sequence_parallel = false;

  bool use_megatron_fsdp = false;
  bool use_custom_fsdp = false;
  int64_t megatron_fsdp_version = 1;
  std::string data_parallel_sharding_strategy = "no_shard";
  std::string outer_dp_sharding_strategy = "no_shard";
  std::optional<int64_t> suggested_communication_unit_size;
  bool fsdp_double_buffer = false;
  bool fsdp_db_use_persist_buf_on_alloc_fail = false;
  bool fsdp_all_gather_in_start_param_sync = true;
  DTypeWord megatron_fsdp_main_params_dtype = {"float32"};
  DTypeWord megatron_fsdp_main_grads_dtype;
  DTypeWord megatron_fsdp_grad_comm_dtype;
  bool megatron_fsdp_use_decoupled_grad = false;
  bool megatron_fsdp_max_pool_double_buffer = false;
  bool megatron_fsdp_cuda_graph_mode = false;
  bool megatron_fsdp_enable_fine_grained_param_gather = false;

  bool fp8_param_gather = false;
  bool fp4_param_gather = false;
  bool reuse_grad_buf_for_mxfp8_param_ag = false;
  bool keep_fp8_transpose_cache = false;
  bool nccl_ub = false;
  bool disable_symmetric_registration = false;
  bool fsdp_manual_registration = false;
};

ConfigSchema<MegatronConfig> megatron_schema();

}  // namespace heddle::megatron_fsdp
