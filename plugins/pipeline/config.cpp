// Schema of the section pipeline, and the dtype of tensors between stages.
#include "config.h"

#include <algorithm>
#include <cmath>

#include "heddle/base/text.h"
#include "heddle/config/common_fields.h"

namespace heddle::pipeline {
namespace {

// Losses that recipes name. Only the first is built.
const std::vector<std::string>& losses() {
  static const std::vector<std::string> names = {"MaskedCrossEntropy", "FusedLinearCrossEntropy",
                                                 "TEParallelCrossEntropy", "ChunkedCrossEntropy"};
  return names;
}

void check_loss(const Node& value) {
  if (!value.is_null()) config::component_of(value, losses());
}

void check_times(const Node& value) {
  if (!value.is_list()) return;  // null, or refused by the reader
  for (const Node& row : value.items()) {
    const auto times = FieldType<std::vector<double>>::read(row);
    const bool is_right = times.size() == 4 && std::all_of(times.begin(), times.end(), [](double time) {
                            return time >= 0 && std::isfinite(time);
                          });
    if (!is_right || times[0] + times[1] + times[2] <= 0)
      throw Error(ErrorCode::config, row.where(),
                  "expected a row [F, I, W, C] of times, got " + row.written(),
                  "set four non-negative numbers: the times of a forward, of input gradients, of weight "
                  "gradients, and of a transfer");
  }
  if (value.items().empty())
    throw Error(ErrorCode::config, value.where(), "the list of times is empty",
                "set at least one row, or null");
}

void add_schedule_fields(ConfigSchema<Config>& schema) {
  schema.field("pp_schedule", &Config::pp_schedule, "Name of the schedule, in any case.")
      .field("pp_schedule_csv", &Config::pp_schedule_csv,
             "File with the schedule's compute table. Overrides pp_schedule.")
      .field("pp_schedule_times", &Config::pp_schedule_times,
             "Measured times for the schedule auto, in any unit: a row [F, I, W, C] for all layers of a "
             "rank, or one row per stage. F is a forward, I the input gradients, W the weight gradients, C a "
             "transfer. null: equal times.",
             Check{"rows of 4", check_times})
      .field("pp_schedule_limit", &Config::pp_schedule_limit,
             "Maximum number of microbatches in flight per rank, for the schedule auto. null: no limit.",
             at_least(1.0))
      .field("pp_microbatch_size", &Config::pp_microbatch_size, "Number of samples per microbatch.",
             at_least<int64_t>(1))
      .field("pp_batch_size", &Config::pp_batch_size,
             "Ignored: a pass takes step_scheduler.local_batch_size samples of a data rank, as in the "
             "recipes.",
             at_least<int64_t>(1))
      .field("layers_per_stage", &Config::layers_per_stage,
             "Number of layers per stage. null: one stage per rank, or two if the schedule needs several.",
             at_least<int64_t>(1))
      .field("round_virtual_stages_to_pp_multiple", &Config::round_virtual_stages_to_pp_multiple,
             "Rounding of a number of stages that is not a multiple of pp_size. null: it is an error.",
             OneOf{{"up", "down"}})
      .field("module_fqns_per_model_part", &Config::module_fqns_per_model_part,
             "Names of the modules of each stage. null: split by layers.");
}

// Adds fields that recipes set for other engines and that heddle does not need.
void add_fields_without_effect(ConfigSchema<Config>& schema) {
  const std::string patch =
      "Ignored: heddle splits the model between units, so no model's forward is patched.";
  schema.field("patch_inner_model", &Config::patch_inner_model, patch)
      .field("patch_causal_lm_model", &Config::patch_causal_lm_model, patch)
      .field("patch_stage_backward_maybe_with_nosync", &Config::patch_stage_backward_maybe_with_nosync,
             "Ignored: fields of the strategy set when gradients are reduced.");
}

void add_stage_fields(ConfigSchema<Config>& schema) {
  schema
      .field("dtype", &Config::dtype, "Dtype of tensors between stages. null: the output dtype of mp_policy.")
      .field("scale_grads_in_schedule", &Config::scale_grads_in_schedule,
             "Divide gradients by the number of microbatches, in addition to the division by the number of "
             "tokens.")
      .field("loss_fn", &Config::loss_fn, "Loss function. null: the recipe's loss_fn.",
             Check{text::join(losses()), check_loss})
      .field("pp_seq_len", &Config::pp_seq_len, "Ignored: shapes between stages follow each step's batch.",
             at_least<int64_t>(1))
      .field("pp_recv_buffer_pool", &Config::pp_recv_buffer_pool, "Reuse receive buffers.")
      .field("pp_recv_buffer_pool_slack", &Config::pp_recv_buffer_pool_slack,
             "Number of additional receive buffers to keep.", at_least<int64_t>(0))
      .field("pp_post_validation", &Config::pp_post_validation,
             "Run the optimizer before the gradient norm of all stages is known, and roll the update back if "
             "it was wrong.")
      .field("pp_overlap", &Config::pp_overlap,
             "Overlap actions that the schedule marks: one computes while the other waits for other ranks.")
      .later("loss_fn", "a pipeline uses the recipe's loss_fn", [](const Config& config) {
        return !config.loss_fn || config.loss_fn->ends_with(losses().front());
      });
}

}  // namespace

ConfigSchema<Config> schema() {
  ConfigSchema<Config> schema;
  add_schedule_fields(schema);
  add_fields_without_effect(schema);
  add_stage_fields(schema);
  return schema;
}

Node derive(Node section, const Node& strategy_config, std::vector<std::string>& warnings) {
  const Node* policy = strategy_config.find("mp_policy");
  if (policy == nullptr) return section;
  const Node* flows = policy->find("output_dtype");
  if (flows == nullptr || flows->is_null()) flows = policy->find("param_dtype");
  if (flows == nullptr || flows->is_null()) return section;
  const Node& given = *section.find("dtype");
  if (given.is_null()) return section.with("dtype", *flows);
  if (!(given == *flows))
    warnings.push_back(
        "pipeline.dtype=" + given.as_text() +
        " does not match the FSDP activation dtype (mp_policy.output_dtype=" + flows->as_text() +
        ") used for inter-stage communication; this can corrupt pipeline stage shape inference. "
        "Leave pipeline.dtype unset to derive it automatically.");
  return section;
}

}  // namespace heddle::pipeline
