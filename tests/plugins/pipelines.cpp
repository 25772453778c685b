// The small model and its pipelines.
#include "plugins/pipelines.h"

#include <mutex>

namespace heddle::tests {

Training single_model() {
  Training run;
  run.model = odd_llama();
  run.model.num_hidden_layers = 5;
  return run;
}

const Outcome& alone() {
  static const Outcome outcome = train(single_model());
  return outcome;
}

Training pipeline(const std::string& schedule, int ranks, int microbatch_rows, int calls) {
  Training run = single_model();
  run.axes = {{"pp", ranks}, {"tp", 1}};
  run.pipeline.microbatch_size = microbatch_rows;
  run.pipeline.overlap = true;  // where the schedule overlaps actions
  run.microbatches = calls;
  if (!schedule.empty()) run.make_schedule = [schedule] { return make_schedule(schedule); };
  return run;
}

std::unique_ptr<IPipelineSchedule> make_schedule(const std::string& name) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  static PluginRegistry plugins({HEDDLE_BINARY_DIR "/plugins"});
  const OfferedSchedule* offered = plugins.schedule(name);
  if (offered == nullptr) throw plugins.missing("schedule", name);
  return offered->make();
}

}  // namespace heddle::tests
