// Conversion of AutoModel's fields to options, and the groups of ranks.
#include "strategy.h"

#include "stage.h"

namespace heddle::megatron_fsdp {
namespace {

Options options_of(const Config& config) {
  Options options;
  options.split = {config.zero_dp_strategy >= 1, config.zero_dp_strategy >= 2, config.zero_dp_strategy >= 3};
  options.unit_modules = config.megatron_fsdp_unit_modules;
  options.bucket_for_each_parameter = config.disable_bucketing;
  if (config.preserve_fp32_weights) options.main_parameters = at::kFloat;
  options.wide_gradients = config.grad_reduce_in_fp32;
  if (config.calculate_per_token_loss)
    options.averaging = Averaging::none;
  else if (config.average_in_collective)
    options.averaging = Averaging::in_the_collective;
  options.overlap_reduce = config.overlap_grad_reduce;
  options.overlap_gather = config.overlap_param_gather;
  if (config.fsdp_double_buffer) options.buffering = Buffering::two_for_alike_units;
  options.check_parameters = config.report_nan_in_param_grad;
  return options;
}

void warn(const Config& config, const DeviceMesh& mesh) {
  if (mesh.rendezvous().rank() != 0) return;
  if (config.zero_dp_strategy != 3)
    mesh.log().warning("megatron_fsdp", "zero_dp_strategy is " + std::to_string(config.zero_dp_strategy) +
                                            ", not 3: every rank holds whole parameters");
}

}  // namespace

Needs MegatronFsdp::needs() const {
  Needs needs;
  needs.axes = {"dp", "cp", "tp"};
  needs.may_use = {"selective_activation_checkpointing", "reductions"};
  needs.refuses = {{"pp", "megatron_fsdp does not support pipeline parallelism"}};
  return needs;
}

std::unique_ptr<ParallelStage> MegatronFsdp::parallelize(Units units, const DeviceMesh& mesh,
                                                         std::span<const Placed> placed) {
  warn(config_, mesh);
  return std::make_unique<Stage>(std::move(units), placed, options_of(config_), mesh);
}

}  // namespace heddle::megatron_fsdp
