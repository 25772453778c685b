// The fields of the section `pipeline:`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/config/schema.h"
#include "heddle/schedule/schedule.h"

namespace heddle::pipeline {

// Fields and defaults of NeMo AutoModel's PipelineConfig. Times and limit of `auto` are heddle's own.
struct Config {
  std::optional<std::string> pp_schedule = "1f1b";
  std::optional<std::string> pp_schedule_csv;
  std::optional<std::vector<std::vector<double>>> pp_schedule_times;
  std::optional<double> pp_schedule_limit;
  int64_t pp_microbatch_size = 1;
  int64_t pp_batch_size = 1;
  std::optional<int64_t> layers_per_stage;
  std::optional<std::string> round_virtual_stages_to_pp_multiple;
  std::optional<std::vector<std::vector<std::string>>> module_fqns_per_model_part;
  bool patch_inner_model = true;
  bool patch_causal_lm_model = true;
  bool patch_stage_backward_maybe_with_nosync = false;
  DTypeWord dtype;
  bool scale_grads_in_schedule = false;
  std::optional<std::string> loss_fn;
  std::optional<int64_t> pp_seq_len;
  bool pp_recv_buffer_pool = false;
  int64_t pp_recv_buffer_pool_slack = 2;
  bool pp_post_validation = false;
  bool pp_overlap = false;
};

ConfigSchema<Config> schema();

// Sets the dtype between stages from the strategy's mixed precision. A different given dtype is kept, with a
// warning.
Node derive(Node section, const Node& strategy_config, std::vector<std::string>& warnings);

// Converts the section to core's PipelineConfig. Throws Error{config} if neither a schedule nor a table is
// given, or for a schedule class without its own order and without a table.
PipelineConfig pipeline_config(const Node& resolved);

}  // namespace heddle::pipeline
