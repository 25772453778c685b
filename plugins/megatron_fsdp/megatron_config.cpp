// The table of megatron's fields, and the rules between them.
#include "megatron_config.h"

namespace heddle::megatron_fsdp {
namespace {

using C = MegatronConfig;

void add_buffer_fields(ConfigSchema<C>& schema) {
  schema
      .field("use_distributed_optimizer", &C::use_distributed_optimizer,
             "Split the optimizer's state over the ranks (ZeRO-1).")
      .field("num_distributed_optimizer_instances", &C::num_distributed_optimizer_instances,
             "Copies of the split state; dp_replicate_size must say the same.", at_least<int64_t>(1))
      .field("grad_reduce_in_fp32", &C::grad_reduce_in_fp32, "Gradients are kept and summed in float32.")
      .field("bucket_size", &C::bucket_size,
             "Elements of a bucket; null: the larger of 40 million and 1 million for each rank.",
             at_least<int64_t>(1))
      .field("num_buckets", &C::num_buckets, "Buckets to make, in place of bucket_size.",
             at_least<int64_t>(1))
      .field("pad_buckets_for_high_nccl_busbw", &C::pad_buckets_for_high_nccl_busbw,
             "Buckets end at multiples of 65536.")
      .field("param_name_patterns_for_fp32_local_accumulation",
             &C::param_name_patterns_for_fp32_local_accumulation,
             "Parameters whose gradients add up in float32 before they are sent; fnmatch, or all.");
}

void add_reduction_fields(ConfigSchema<C>& schema) {
  schema.field("overlap_grad_reduce", &C::overlap_grad_reduce, "Reduce gradients behind backward.")
      .field("overlap_param_gather", &C::overlap_param_gather, "Gather parameters behind forward.")
      .field("align_param_gather", &C::align_param_gather,
             "Start all gathers right after the update, on every stage of a pipeline at once.")
      .field("average_in_collective", &C::average_in_collective,
             "The collective averages; else gradients are divided before it.")
      .field("gradient_reduce_div_fusion", &C::gradient_reduce_div_fusion,
             "The collective divides gradients that are not bfloat16; false: a pass of its own.")
      .field("calculate_per_token_loss", &C::calculate_per_token_loss,
             "Gradients are summed over ranks and not averaged.")
      .field("reduce_scatter_with_fp32_accumulation", &C::reduce_scatter_with_fp32_accumulation,
             "Send gradients as they are, and sum them in float32 in rank order.")
      .field("delay_wgrad_compute", &C::delay_wgrad_compute,
             "Gradients of weights are computed after all gradients of inputs.")
      .field("sequence_parallel", &C::sequence_parallel,
             "Split the sequence between tensor-parallel regions.")
      .field("check_for_nan_in_grad", &C::check_for_nan_in_grad,
             "Stop at NaN and Inf in a bucket before it is summed.")
      .field("check_for_large_grads", &C::check_for_large_grads,
             "Warn of a bucket with ten times the largest norm of the first hundred.");
}

void add_sharding_fields(ConfigSchema<C>& schema) {
  schema
      .field("use_megatron_fsdp", &C::use_megatron_fsdp,
             "Buckets by unit, split as the sharding strategies say.")
      .field("use_custom_fsdp", &C::use_custom_fsdp, "The old name of use_megatron_fsdp; refused.")
      .field("megatron_fsdp_version", &C::megatron_fsdp_version, "Both versions run the same here.",
             Range<int64_t>{1, 2})
      .field("data_parallel_sharding_strategy", &C::data_parallel_sharding_strategy,
             "What is split: nothing, the optimizer, gradients as well, parameters as well.",
             OneOf{{"no_shard", "optim", "optim_grads", "optim_grads_params"}})
      .field("outer_dp_sharding_strategy", &C::outer_dp_sharding_strategy,
             "What is split over dp_replicate as well.", OneOf{{"no_shard", "optim"}})
      .field("suggested_communication_unit_size", &C::suggested_communication_unit_size,
             "Elements in flight; gathers get half of it. Null: two of the largest units.",
             at_least<int64_t>(1));
}

void add_fsdp_fields(ConfigSchema<C>& schema) {
  schema.field("fsdp_double_buffer", &C::fsdp_double_buffer, "Two buffers in turn for units that are alike.")
      .field("fsdp_db_use_persist_buf_on_alloc_fail", &C::fsdp_db_use_persist_buf_on_alloc_fail,
             "A buffer of its own for a unit that fits neither of the two.")
      .field("megatron_fsdp_max_pool_double_buffer", &C::megatron_fsdp_max_pool_double_buffer,
             "Two buffers in turn, as large as the largest unit; sets fsdp_double_buffer.")
      .field("fsdp_all_gather_in_start_param_sync", &C::fsdp_all_gather_in_start_param_sync,
             "Start the first gather right after the update.")
      .field("megatron_fsdp_main_params_dtype", &C::megatron_fsdp_main_params_dtype,
             "Of what the optimizer updates; null: the parameters' own.")
      .field("megatron_fsdp_main_grads_dtype", &C::megatron_fsdp_main_grads_dtype,
             "Of gradients as they add up; null: the parameters'.")
      .field("megatron_fsdp_grad_comm_dtype", &C::megatron_fsdp_grad_comm_dtype,
             "Of gradients as they are sent; null: as they add up.")
      .field("megatron_fsdp_use_decoupled_grad", &C::megatron_fsdp_use_decoupled_grad,
             "The optimizer gets gradients in their own dtype; false: in that of the main parameters.")
      .field("megatron_fsdp_cuda_graph_mode", &C::megatron_fsdp_cuda_graph_mode,
             "Keep gradients for captured graphs.")
      .field("megatron_fsdp_enable_fine_grained_param_gather",
             &C::megatron_fsdp_enable_fine_grained_param_gather, "Gather a module at a time.");
}

void add_hardware_fields(ConfigSchema<C>& schema) {
  schema.field("fp8_param_gather", &C::fp8_param_gather, "Keep and gather parameters in fp8.")
      .field("fp4_param_gather", &C::fp4_param_gather, "Keep and gather parameters in fp4.")
      .field("reuse_grad_buf_for_mxfp8_param_ag", &C::reuse_grad_buf_for_mxfp8_param_ag,
             "Gather MXFP8 parameters through the gradients' buffer.")
      .field("keep_fp8_transpose_cache", &C::keep_fp8_transpose_cache, "Keep transposed fp8 weights.")
      .field("nccl_ub", &C::nccl_ub, "Register buffers with NCCL.")
      .field("disable_symmetric_registration", &C::disable_symmetric_registration,
             "Register NCCL's buffers in the old way.")
      .field("fsdp_manual_registration", &C::fsdp_manual_registration,
             "Register NCCL's buffers once, after the first step.");
  const std::string fp8 = "needs a GPU with fp8 units and fp8 layers, which heddle does not have",
                    fp4 = "needs a GPU with fp4 units and fp4 layers, which heddle does not have",
                    buffers = "needs GPUs whose NCCL buffers are registered, which heddle does not do yet",
                    graphs = "needs a GPU whose steps are captured as graphs, which heddle does not do yet";
  schema.later("fp8_param_gather", fp8)
      .later("fp4_param_gather", fp4)
      .later("reuse_grad_buf_for_mxfp8_param_ag", fp8)
      .later("keep_fp8_transpose_cache", fp8)
      .later("megatron_fsdp_enable_fine_grained_param_gather", fp8)
      .later("megatron_fsdp_cuda_graph_mode", graphs)
      .later("nccl_ub", buffers)
      .later("disable_symmetric_registration", buffers)
      .later("fsdp_manual_registration", buffers);
}

struct Rule {
  bool (*broken)(const C&);
  const char* text;
};

bool gathers(const C& c) {
  return c.use_distributed_optimizer || c.use_megatron_fsdp;
}

bool patterns(const C& c) {
  return !c.param_name_patterns_for_fp32_local_accumulation.empty();
}

bool sums_itself(const C& c) {
  return c.reduce_scatter_with_fp32_accumulation;
}

bool splits_outside(const C& c) {
  return c.outer_dp_sharding_strategy != "no_shard";
}

// Megatron's own rules (__post_init__ and the arguments); each names both keys.
constexpr Rule kBufferRules[] = {
    {[](const C& c) { return c.use_custom_fsdp; }, "use_custom_fsdp is now called use_megatron_fsdp"},
    {[](const C& c) { return c.num_buckets && c.bucket_size; },
     "num_buckets and bucket_size are two ways to say the same; give one of them"},
    {[](const C& c) { return c.reuse_grad_buf_for_mxfp8_param_ag && !c.fp8_param_gather; },
     "reuse_grad_buf_for_mxfp8_param_ag needs fp8_param_gather: true"},
    {[](const C& c) { return patterns(c) && c.grad_reduce_in_fp32; },
     "param_name_patterns_for_fp32_local_accumulation and grad_reduce_in_fp32: true exclude each other: "
     "gradients are in float32 already"},
    {[](const C& c) { return c.calculate_per_token_loss && c.average_in_collective; },
     "calculate_per_token_loss sums gradients, and average_in_collective averages them; give one of them"},
    {[](const C& c) { return c.overlap_param_gather && !gathers(c); },
     "overlap_param_gather needs use_distributed_optimizer or use_megatron_fsdp: nothing is gathered "
     "without"},
    {[](const C& c) { return c.overlap_param_gather && !c.overlap_grad_reduce; },
     "overlap_param_gather needs overlap_grad_reduce: true"},
    {[](const C& c) { return c.align_param_gather && !c.overlap_param_gather; },
     "align_param_gather needs overlap_param_gather: true"},
    {[](const C& c) { return sums_itself(c) && c.grad_reduce_in_fp32; },
     "reduce_scatter_with_fp32_accumulation and grad_reduce_in_fp32: true exclude each other: sums are in "
     "float32 already"},
    {[](const C& c) { return sums_itself(c) && !gathers(c); },
     "reduce_scatter_with_fp32_accumulation needs use_distributed_optimizer: sums are not scattered without"},
    {[](const C& c) { return sums_itself(c) && c.num_distributed_optimizer_instances > 1; },
     "reduce_scatter_with_fp32_accumulation needs num_distributed_optimizer_instances: 1"},
    {[](const C& c) { return c.num_distributed_optimizer_instances > 1 && !gathers(c); },
     "num_distributed_optimizer_instances above 1 needs use_distributed_optimizer: true"}};

constexpr Rule kFsdpRules[] = {
    {[](const C& c) {
       return splits_outside(c) && c.data_parallel_sharding_strategy != "optim_grads_params";
     },
     "outer_dp_sharding_strategy: optim needs data_parallel_sharding_strategy: optim_grads_params"},
    {[](const C& c) { return c.fsdp_db_use_persist_buf_on_alloc_fail && !c.fsdp_double_buffer; },
     "fsdp_db_use_persist_buf_on_alloc_fail needs fsdp_double_buffer: true"},
    {[](const C& c) { return c.use_megatron_fsdp && (c.bucket_size || c.num_buckets); },
     "bucket_size and num_buckets are of flat buffers, and use_megatron_fsdp makes a bucket of each unit"},
    {[](const C& c) { return c.use_megatron_fsdp && c.pad_buckets_for_high_nccl_busbw; },
     "pad_buckets_for_high_nccl_busbw is of flat buffers, and use_megatron_fsdp keeps rows whole"},
    {[](const C& c) { return c.use_megatron_fsdp && patterns(c); },
     "param_name_patterns_for_fp32_local_accumulation is of flat buffers; with use_megatron_fsdp say "
     "megatron_fsdp_main_grads_dtype: float32"}};

constexpr Rule kOnlyWithFsdp[] = {
    {[](const C& c) { return c.data_parallel_sharding_strategy != "no_shard"; },
     "data_parallel_sharding_strategy"},
    {splits_outside, "outer_dp_sharding_strategy"},
    {[](const C& c) { return c.suggested_communication_unit_size.has_value(); },
     "suggested_communication_unit_size"},
    {[](const C& c) { return c.fsdp_double_buffer; }, "fsdp_double_buffer"},
    {[](const C& c) { return !c.megatron_fsdp_main_grads_dtype.word.empty(); },
     "megatron_fsdp_main_grads_dtype"},
    {[](const C& c) { return !c.megatron_fsdp_grad_comm_dtype.word.empty(); },
     "megatron_fsdp_grad_comm_dtype"},
    {[](const C& c) { return c.megatron_fsdp_use_decoupled_grad; }, "megatron_fsdp_use_decoupled_grad"}};

void add_rules(ConfigSchema<C>& schema) {
  const auto add = [&](const Rule& rule) {
    schema.rule([rule](const C& c) { return rule.broken(c) ? rule.text : ""; });
  };
  for (const Rule& rule : kBufferRules) add(rule);
  for (const Rule& rule : kOnlyWithFsdp)
    schema.rule([rule](const C& c) {
      return rule.broken(c) && !c.use_megatron_fsdp
                 ? std::string(rule.text) + " needs use_megatron_fsdp: true"
                 : std::string();
    });
  for (const Rule& rule : kFsdpRules) add(rule);
}

}  // namespace

ConfigSchema<MegatronConfig> megatron_schema() {
  ConfigSchema<C> schema;
  add_buffer_fields(schema);
  add_reduction_fields(schema);
  add_sharding_fields(schema);
  add_fsdp_fields(schema);
  add_hardware_fields(schema);
  schema.then(
      [](C& c) { c.fsdp_double_buffer = c.fsdp_double_buffer || c.megatron_fsdp_max_pool_double_buffer; });
  add_rules(schema);
  return schema;
}

}  // namespace heddle::megatron_fsdp
