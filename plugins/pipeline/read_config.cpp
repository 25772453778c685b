// Conversion of the section to core's PipelineConfig.
#include "config.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle::pipeline {

namespace {

// Refuses two class names of recipes that have no order without a table from a file.
void refuse_class_without_table(const Config& config, const std::string& where) {
  if (config.pp_schedule_csv) return;
  for (const char* name : {"PipelineScheduleSingle", "PipelineScheduleMulti"})
    if (text::lower(*config.pp_schedule) == text::lower(name))
      throw Error(ErrorCode::config, where,
                  std::string("pp_schedule: '") + name + "' has no order without a table",
                  "set pp_schedule_csv to the path of a table, or pp_schedule to a schedule such as 1f1b");
}

}  // namespace

PipelineConfig pipeline_config(const Node& resolved) {
  const Config config = schema().read(resolved);
  PipelineConfig pipeline;
  if (!config.pp_schedule && !config.pp_schedule_csv)
    throw Error(ErrorCode::config, pipeline.where,
                "Either pipeline_parallel_schedule or pipeline_parallel_schedule_csv must be provided",
                "set pp_schedule, or pp_schedule_csv to the path of a table");
  refuse_class_without_table(config, pipeline.where);
  pipeline.table = config.pp_schedule_csv.value_or("");
  if (pipeline.table.empty()) pipeline.schedule = *config.pp_schedule;
  pipeline.times = config.pp_schedule_times.value_or(std::vector<std::vector<double>>());
  pipeline.limit = config.pp_schedule_limit;
  pipeline.microbatch_size = config.pp_microbatch_size;
  pipeline.layers_per_stage = config.layers_per_stage;
  if (config.round_virtual_stages_to_pp_multiple)
    pipeline.rounding =
        *config.round_virtual_stages_to_pp_multiple == "up" ? StageRounding::up : StageRounding::down;
  pipeline.modules = config.module_fqns_per_model_part;
  pipeline.dtype = config.dtype.word;
  if (config.scale_grads_in_schedule) pipeline.gradients = GradientScale::by_microbatches;
  pipeline.keep_receive_buffers = config.pp_recv_buffer_pool;
  pipeline.buffer_slack = config.pp_recv_buffer_pool_slack;
  pipeline.post_validation = config.pp_post_validation;
  pipeline.overlap = config.pp_overlap;
  return pipeline;
}

}  // namespace heddle::pipeline
