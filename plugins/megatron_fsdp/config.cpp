// The table of megatron_fsdp's fields.
#include "config.h"

namespace heddle::megatron_fsdp {
namespace {

void add_numeric_fields(ConfigSchema<Config>& schema) {
  schema
      .field("megatron_fsdp_unit_modules", &Config::megatron_fsdp_unit_modules,
             "Classes whose modules are units; null: the model's blocks.")
      .field("zero_dp_strategy", &Config::zero_dp_strategy,
             "What is split: 0 nothing, 1 optimizer state, 2 and gradients, 3 and parameters.",
             Range<int64_t>{0, 3})
      .field("init_fsdp_with_meta_device", &Config::init_fsdp_with_meta_device,
             "Units come from meta and are never whole; this holds in any case.")
      .field("grad_reduce_in_fp32", &Config::grad_reduce_in_fp32, "Gradients are kept and summed in float32.")
      .field("preserve_fp32_weights", &Config::preserve_fp32_weights,
             "The optimizer updates float32 weights; false: the model's own dtype.")
      .field("check_for_nan_in_grad", &Config::check_for_nan_in_grad,
             "Without effect; report_nan_in_param_grad looks at gradients.")
      .field("report_nan_in_param_grad", &Config::report_nan_in_param_grad,
             "Stop at NaN and Inf in the gradient of a parameter, after each microbatch; slow.")
      .field("calculate_per_token_loss", &Config::calculate_per_token_loss,
             "Gradients are summed over ranks and not averaged.");
}

void add_communication_fields(ConfigSchema<Config>& schema) {
  schema.field("overlap_grad_reduce", &Config::overlap_grad_reduce, "Reduce gradients behind backward.")
      .field("overlap_param_gather", &Config::overlap_param_gather, "Gather the next unit behind compute.")
      .field("average_in_collective", &Config::average_in_collective,
             "The collective averages; else gradients are scaled before it.")
      .field("disable_bucketing", &Config::disable_bucketing, "One bucket for each parameter.")
      .field("keep_fp8_transpose_cache", &Config::keep_fp8_transpose_cache, "Keep transposed fp8 weights.")
      .field("nccl_ub", &Config::nccl_ub, "Register buffers with NCCL.")
      .field("fsdp_double_buffer", &Config::fsdp_double_buffer,
             "Two buffers in turn for units that are alike.")
      .field("activation_checkpointing", &Config::activation_checkpointing,
             "Stands for the key of the section, which is read apart; stays false here.");
}

}  // namespace

ConfigSchema<Config> schema() {
  ConfigSchema<Config> schema;
  add_numeric_fields(schema);
  add_communication_fields(schema);
  schema
      .rule([](const Config& c) {
        return c.average_in_collective && c.calculate_per_token_loss
                   ? "calculate_per_token_loss sums gradients, and average_in_collective averages them; give "
                     "one of them"
                   : "";
      })
      .rule([](const Config& c) {
        return c.init_fsdp_with_meta_device && c.zero_dp_strategy == 0
                   ? "init_fsdp_with_meta_device needs zero_dp_strategy 1, 2 or 3: with 0 every unit is whole"
                   : "";
      })
      .later("keep_fp8_transpose_cache",
             "needs a GPU with fp8 units and fp8 layers, which heddle does not have")
      .later("nccl_ub", "needs GPUs whose NCCL buffers are registered, which heddle does not do yet");
  return schema;
}

}  // namespace heddle::megatron_fsdp
