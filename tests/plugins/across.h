// Trainings on the mesh of a strategy, and in stages.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plugins/pipelines.h"
#include "plugins/tensor_training.h"

namespace heddle::tests {

struct Ranks {
  int dp = 1, tp = 1, pp = 1, replicas = 1;  // replicas: of dp
  int all() const { return dp * tp * pp; }
};

// The mesh of each strategy. `pp` of 1 stays out where the strategy has it only when it is used.
inline std::vector<Axis> mesh_for(const std::string& strategy, const Ranks& ranks) {
  if (strategy == "megatron_fsdp") return {{"dp", ranks.dp}, {"cp", 1}, {"tp", ranks.tp}};
  if (strategy != "ddp")
    return {{"pp", ranks.pp},
            {"dp_replicate", ranks.replicas},
            {"dp_shard", ranks.dp / ranks.replicas},
            {"cp", 1},
            {"tp", ranks.tp}};
  return {{"pp", ranks.pp}, {"dp", ranks.dp}, {"tp", ranks.tp}};
}

// The run under a strategy: fsdp2 in fp32, and more fields, a line each.
inline Training across(Training run, const std::string& strategy, const Ranks& ranks,
                       const std::string& more = "") {
  run.strategy = strategy;
  run.section = (strategy == "fsdp2" && more.find("mp_policy") == more.npos ? kFloat : "") + more;
  if (run.section.empty()) run.section = "{}";
  run.axes = mesh_for(strategy, ranks);
  return run;
}

// One call of a schedule a step, whose microbatches have so many sequences.
inline Training staged(Training run, const std::string& schedule, int rows = 3) {
  run.make_schedule = [schedule] { return make_schedule(schedule); };
  run.pipeline.microbatch_size = rows;
  run.microbatches = 1;
  return run;
}

}  // namespace heddle::tests
