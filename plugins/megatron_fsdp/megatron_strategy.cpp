// Megatron-Core's fields as options, and its groups of ranks.
#include <algorithm>
#include <string>

#include "stage.h"
#include "strategy.h"

namespace heddle::megatron_fsdp {
namespace {

std::optional<at::ScalarType> dtype_of_key(const DTypeWord& dtype, const char* key) {
  if (dtype.word.empty()) return std::nullopt;
  if (dtype.word == "float32") return at::kFloat;
  if (dtype.word == "bfloat16") return at::kBFloat16;
  if (dtype.word == "float16") return at::kHalf;
  if (dtype.word == "float64") return at::kDouble;
  throw Error(ErrorCode::config, std::string("distributed.") + key,
              "'" + dtype.word + "' is not a dtype that parameters and gradients can have",
              "use float32, bfloat16, float16 or float64");
}

// One bucket without overlap, and on later stages of a pipeline: their backwards end in a bubble.
void set_buckets(const MegatronConfig& config, const DeviceMesh& mesh, int shards, Options& options) {
  constexpr int64_t kLeast = 40'000'000, kForEachRank = 1'000'000;
  options.by_unit = false;
  options.split = {config.use_distributed_optimizer, false, false};
  if (options.split.optimizer)
    options.padding = config.pad_buckets_for_high_nccl_busbw ? Padding::wide : Padding::narrow;
  options.main_parameters = at::kFloat;
  options.wide_patterns = config.param_name_patterns_for_fp32_local_accumulation;
  options.cast_gradients = true;
  if (!config.overlap_grad_reduce || mesh.rank(kPipelineAxis) > 0) return;
  options.bucket_elements = config.bucket_size.value_or(std::max(kLeast, kForEachRank * shards));
  options.bucket_count = config.num_buckets;
}

void set_fsdp(const MegatronConfig& config, Options& options) {
  const std::string& strategy = config.data_parallel_sharding_strategy;
  options.split.parameters = strategy == "optim_grads_params";
  options.split.gradients = options.split.parameters || strategy == "optim_grads";
  options.split.optimizer = strategy != "no_shard";
  options.split.outer = config.outer_dp_sharding_strategy == "optim";
  options.main_parameters =
      dtype_of_key(config.megatron_fsdp_main_params_dtype, "megatron_fsdp_main_params_dtype");
  options.main_gradients =
      dtype_of_key(config.megatron_fsdp_main_grads_dtype, "megatron_fsdp_main_grads_dtype");
  options.wire = dtype_of_key(config.megatron_fsdp_grad_comm_dtype, "megatron_fsdp_grad_comm_dtype");
  options.cast_gradients = !config.megatron_fsdp_use_decoupled_grad;
  options.elements_in_flight = config.suggested_communication_unit_size;
  if (config.megatron_fsdp_max_pool_double_buffer)
    options.buffering = Buffering::two_for_all_units;
  else if (config.fsdp_double_buffer)
    options.buffering = Buffering::two_for_alike_units;
  options.keep_outliers = config.fsdp_db_use_persist_buf_on_alloc_fail;
  options.gather_first_after_update =
      config.overlap_param_gather && config.fsdp_all_gather_in_start_param_sync;
}

Options options_of(const MegatronConfig& config, const DeviceMesh& mesh, int shards) {
  Options options;
  options.name = "megatron";
  config.use_megatron_fsdp ? set_fsdp(config, options) : set_buckets(config, mesh, shards, options);
  options.wide_gradients = config.grad_reduce_in_fp32;
  if (config.calculate_per_token_loss)
    options.averaging = Averaging::none;
  else if (config.average_in_collective)
    options.averaging = Averaging::in_the_collective;
  options.average_wide_in_collective = config.gradient_reduce_div_fusion;
  options.sum_in_float32 = config.reduce_scatter_with_fp32_accumulation;
  options.overlap_reduce = config.overlap_grad_reduce;
  options.overlap_gather = config.overlap_param_gather;
  options.gather_all_after_update = config.align_param_gather;
  options.check_buckets = config.check_for_nan_in_grad;
  options.check_large = config.check_for_large_grads;
  options.weights_last = config.delay_wgrad_compute;
  return options;
}

// A host may have a mesh of its own; gradients that are not summed would be wrong without an error.
void check_mesh(const DeviceMesh& mesh, const MegatronConfig& config) {
  const int dp = mesh.size("dp"), replicas = mesh.size("dp_replicate"), shards = mesh.size("dp_shard");
  if (dp != replicas * shards)
    throw Error(ErrorCode::mesh, "megatron",
                "this mesh has an axis dp of " + std::to_string(dp) + " ranks, which megatron does not use",
                "name the axes pp, dp_replicate, dp_shard, cp, tp");
  const int64_t instances = config.num_distributed_optimizer_instances;
  if (instances > 1 && instances != replicas)
    throw Error(ErrorCode::mesh, "megatron",
                "num_distributed_optimizer_instances is " + std::to_string(instances) +
                    ", and dp_replicate_size is " + std::to_string(replicas),
                "an instance is a replica of this mesh: set dp_replicate_size: " + std::to_string(instances));
  if (config.outer_dp_sharding_strategy == "optim" && mesh.size("dp_shard_cp") == 1)
    throw Error(
        ErrorCode::mesh, "megatron",
        "outer_dp_sharding_strategy: optim splits what data_parallel_sharding_strategy has split, and "
        "dp_replicate_size leaves one rank to split it over",
        "choose a smaller dp_replicate_size");
}

}  // namespace

Needs Megatron::needs() const {
  Needs needs;
  needs.axes = {"pp", "dp_replicate", "dp_shard", "cp", "tp"};
  needs.may_use = {"selective_activation_checkpointing", "reductions"};
  return needs;
}

std::unique_ptr<ParallelStage> Megatron::parallelize(Units units, const DeviceMesh& mesh,
                                                     std::span<const Placed> placed) {
  check_mesh(mesh, config_);
  const int shards = mesh.size(Reductions(mesh, placed).dense().shards);
  return std::make_unique<Stage>(std::move(units), placed, options_of(config_, mesh, shards), mesh);
}

}  // namespace heddle::megatron_fsdp
