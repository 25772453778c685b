// Trainings over ranks of cp, by every method.
#pragma once

#include "plugins/tensor_training.h"

namespace heddle::tests {

using Methods = std::vector<std::string>;
inline const Methods kMethods = {"allgather", "ring", "ulysses", "ring_ulysses"};

inline std::string block(const std::string& method) {
  return "context: {method: " + method + "}";
}

inline std::vector<Axis> mesh_of(int replicas, int shards, int cp, int tp = 1, int pp = 1) {
  return {{"pp", pp}, {"dp_replicate", replicas}, {"dp_shard", shards}, {"cp", cp}, {"tp", tp}};
}

// Sequences of seven tokens: no number of ranks divides them.
inline Training over_cp(Training run, std::vector<Axis> axes, const std::string& method,
                        const std::string& strategy = "fsdp2") {
  run.strategy = strategy;
  run.section = strategy == "fsdp2" ? kFloat : "{}";
  run.axes = std::move(axes);
  run.parallelizers.emplace_back("context", block(method));
  return run;
}

}  // namespace heddle::tests
