// Schema of megatron_fsdp.
#include "config.h"

namespace heddle::megatron_fsdp {
namespace {

void add_numeric_fields(ConfigSchema<Config>& schema) {
  schema
      .field("megatron_fsdp_unit_modules", &Config::megatron_fsdp_unit_modules,
             "Classes whose modules are sharding units. null: the model's blocks.")
      .field("zero_dp_strategy", &Config::zero_dp_strategy,
             "ZeRO stage. 0: nothing is split. 1: optimizer state. 2: optimizer state and gradients. 3: "
             "optimizer state, gradients and parameters.",
             Range<int64_t>{0, 3})
      .field("init_fsdp_with_meta_device", &Config::init_fsdp_with_meta_device,
             "Ignored: units are always created on meta and never materialized whole.")
      .field("grad_reduce_in_fp32", &Config::grad_reduce_in_fp32,
             "Accumulate and reduce gradients in float32.")
      .field("preserve_fp32_weights", &Config::preserve_fp32_weights,
             "Keep float32 main weights for the optimizer. false: it updates weights in the model's dtype.")
      .field("check_for_nan_in_grad", &Config::check_for_nan_in_grad,
             "Ignored: set report_nan_in_param_grad to check gradients.")
      .field("report_nan_in_param_grad", &Config::report_nan_in_param_grad,
             "Check the gradient of each parameter for NaN and Inf after each microbatch, and stop the run. "
             "Slow.")
      .field("calculate_per_token_loss", &Config::calculate_per_token_loss,
             "Sum gradients over ranks instead of averaging them.");
}

void add_communication_fields(ConfigSchema<Config>& schema) {
  schema
      .field("overlap_grad_reduce", &Config::overlap_grad_reduce,
             "Overlap gradient reduction with the backward.")
      .field("overlap_param_gather", &Config::overlap_param_gather,
             "Overlap the gather of the next unit with compute.")
      .field("average_in_collective", &Config::average_in_collective,
             "Average gradients in the collective. false: scale gradients before it.")
      .field("disable_bucketing", &Config::disable_bucketing, "Use one bucket per parameter.")
      .field("keep_fp8_transpose_cache", &Config::keep_fp8_transpose_cache, "Keep transposed fp8 weights.")
      .field("nccl_ub", &Config::nccl_ub, "Register buffers with NCCL.")
      .field("fsdp_double_buffer", &Config::fsdp_double_buffer,
             "Share two alternating buffers among units of equal size.")
      .field("activation_checkpointing", &Config::activation_checkpointing,
             "Ignored here: set distributed.activation_checkpointing.");
}

}  // namespace

ConfigSchema<Config> schema() {
  ConfigSchema<Config> schema;
  add_numeric_fields(schema);
  add_communication_fields(schema);
  schema
      .rule([](const Config& c) {
        return c.average_in_collective && c.calculate_per_token_loss
                   ? "calculate_per_token_loss sums gradients, but average_in_collective averages them; set "
                     "only one of them"
                   : "";
      })
      .rule([](const Config& c) {
        return c.init_fsdp_with_meta_device && c.zero_dp_strategy == 0
                   ? "init_fsdp_with_meta_device needs zero_dp_strategy 1, 2 or 3: with 0 every unit is whole"
                   : "";
      })
      .later("keep_fp8_transpose_cache", "needs fp8 layers, which heddle does not have")
      .later("nccl_ub", "registration of NCCL buffers is not built yet");
  return schema;
}

}  // namespace heddle::megatron_fsdp
