// Trainings under megatron_fsdp and megatron, for their tests.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "plugins/toy_training.h"

namespace heddle::tests {

inline Training llama_alone() {
  Training run;
  run.model = odd_llama();
  return run;
}

inline std::vector<Axis> mfsdp_axes(int dp, int tp = 1) {
  return {{"dp", dp}, {"cp", 1}, {"tp", tp}};
}

// AutoModel's fields on the odd Llama.
inline Training mfsdp(int dp, const std::string& section) {
  Training run = llama_alone();
  run.strategy = "megatron_fsdp";
  run.section = section;
  run.axes = mfsdp_axes(dp);
  return run;
}

// Megatron-Core's fields on the odd Llama.
inline Training megatron(int shards_each, const std::string& section, int replicas = 1) {
  Training run = llama_alone();
  run.strategy = "megatron";
  run.section = section;
  run.axes = shards(shards_each, replicas);
  return run;
}

// The toy units with the fields of `like`.
inline Training toy_like(Training like, Toy shape = {}) {
  Training run = toy(like.strategy, like.axes, "", shape);
  run.section = like.section;
  return run;
}

inline std::string zero(int strategy, const std::string& more = "") {
  return "zero_dp_strategy: " + std::to_string(strategy) + "\n" + more;
}

inline std::string fsdp(const std::string& strategy, const std::string& more = "") {
  return "use_megatron_fsdp: true\ndata_parallel_sharding_strategy: " + strategy + "\n" + more;
}

inline const std::vector<std::string> kShardings = {"no_shard", "optim", "optim_grads", "optim_grads_params"};

// Flat buffers of several buckets that are split inside rows.
inline const std::string kFlat =
    "use_distributed_optimizer: true\noverlap_grad_reduce: true\nbucket_size: 1000\n";

}  // namespace heddle::tests
