// The table of the pipeline's fields, and the dtype that flows between stages.
#include "config.h"

#include <algorithm>
#include <cmath>

#include "heddle/base/text.h"
#include "heddle/config/common_fields.h"

namespace heddle::pipeline {
namespace {

// The recipes' values; the first is the one that is built.
const std::vector<std::string>& losses() {
  static const std::vector<std::string> names = {"MaskedCrossEntropy", "FusedLinearCrossEntropy",
                                                 "TEParallelCrossEntropy", "ChunkedCrossEntropy"};
  return names;
}

void check_loss(const Node& value) {
  if (!value.is_null()) config::component_of(value, losses());
}

void check_times(const Node& value) {
  if (!value.is_list()) return;  // null, or read refuses it
  for (const Node& row : value.items()) {
    const auto times = FieldType<std::vector<double>>::read(row);
    const bool is_right = times.size() == 4 && std::all_of(times.begin(), times.end(), [](double time) {
                            return time >= 0 && std::isfinite(time);
                          });
    if (!is_right || times[0] + times[1] + times[2] <= 0)
      throw Error(ErrorCode::config, row.where(),
                  "expected a row [F, I, W, C] of times, got " + row.written(),
                  "four numbers that are not negative: a forward, the gradients of inputs, those of weights, "
                  "and a transfer");
  }
  if (value.items().empty())
    throw Error(ErrorCode::config, value.where(), "has no row", "give one row, or null");
}

void add_schedule_fields(ConfigSchema<Config>& schema) {
  schema.field("pp_schedule", &Config::pp_schedule, "Name of the schedule, in any case.")
      .field("pp_schedule_csv", &Config::pp_schedule_csv,
             "A file with the schedule's compute table; wins over pp_schedule.")
      .field(
          "pp_schedule_times", &Config::pp_schedule_times,
          "Measured times for auto, in any unit: a row [F, I, W, C] of all layers of a rank, or one of each "
          "stage; C is a transfer. null: equal ones.",
          Check{"rows of 4", check_times})
      .field("pp_schedule_limit", &Config::pp_schedule_limit,
             "Microbatches that a rank may keep alive, for auto; null: any.", at_least(1.0))
      .field("pp_microbatch_size", &Config::pp_microbatch_size, "Samples in a microbatch.",
             at_least<int64_t>(1))
      .field("pp_batch_size", &Config::pp_batch_size,
             "No effect: a pass takes step_scheduler.local_batch_size samples of a data rank, as in the "
             "recipes.",
             at_least<int64_t>(1))
      .field("layers_per_stage", &Config::layers_per_stage,
             "Layers in a stage; null: one stage on a rank, or two where the schedule takes several.",
             at_least<int64_t>(1))
      .field("round_virtual_stages_to_pp_multiple", &Config::round_virtual_stages_to_pp_multiple,
             "Where the number of stages goes that the ranks do not divide; null: it is an error.",
             OneOf{{"up", "down"}})
      .field("module_fqns_per_model_part", &Config::module_fqns_per_model_part,
             "The names of each stage's modules; null: split by layers.");
}

// Fields that other engines need and this one does not: accepted, because recipes have them.
void add_fields_without_effect(ConfigSchema<Config>& schema) {
  const std::string patch =
      "No effect: units are cut between stages, so that no model's forward is replaced.";
  schema.field("patch_inner_model", &Config::patch_inner_model, patch)
      .field("patch_causal_lm_model", &Config::patch_causal_lm_model, patch)
      .field("patch_stage_backward_maybe_with_nosync", &Config::patch_stage_backward_maybe_with_nosync,
             "No effect: the strategy's own fields say when gradients are reduced.");
}

void add_stage_fields(ConfigSchema<Config>& schema) {
  schema.field("dtype", &Config::dtype, "Dtype between stages; null: what mp_policy returns.")
      .field("scale_grads_in_schedule", &Config::scale_grads_in_schedule,
             "Divide gradients by the number of microbatches, besides the loss's own division by its tokens.")
      .field("loss_fn", &Config::loss_fn, "The loss; null: the recipe's.",
             Check{text::join(losses()), check_loss})
      .field("pp_seq_len", &Config::pp_seq_len, "No effect: shapes between stages follow each step's batch.",
             at_least<int64_t>(1))
      .field("pp_recv_buffer_pool", &Config::pp_recv_buffer_pool, "Receive into buffers that are kept.")
      .field("pp_recv_buffer_pool_slack", &Config::pp_recv_buffer_pool_slack, "Buffers kept beyond need.",
             at_least<int64_t>(0))
      .field("pp_post_validation", &Config::pp_post_validation,
             "Update before the gradient norm of all stages is known, and undo that if it was wrong.")
      .field("pp_overlap", &Config::pp_overlap,
             "Of two actions that the schedule overlaps, one computes while the other waits for other ranks.")
      .later("loss_fn", "the loss of a pipeline is the recipe's loss_fn; leave this null",
             [](const Config& config) {
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
