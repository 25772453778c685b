// Runs of small mixtures of experts, on one rank and under expert parallelism.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plugins/tensor_training.h"

namespace heddle::tests {

// Eight experts that a token chooses two of, in two layers; 21 tokens a microbatch on one rank.
inline Training eight_experts(const std::string& model_type = "qwen3_moe", int64_t top_k = 2) {
  Training run = four_heads(model_type);
  run.model.qk_norm = model_type == "qwen3_moe";
  llama::Mixture& mixture = run.model.mixture;
  mixture.experts = 8, mixture.top_k = top_k, mixture.width = 5;
  mixture.normalise = top_k > 1;
  if (model_type == "qwen2_moe") mixture.shared_width = 9;
  return run;
}

inline std::vector<Axis> mesh_of(int replicas, int shards, int cp = 1, int tp = 1, int pp = 1) {
  return {{"pp", pp}, {"dp_replicate", replicas}, {"dp_shard", shards}, {"cp", cp}, {"tp", tp}};
}

// With the view that the engine makes of ep_size.
inline Training over_ep(Training run, std::vector<Axis> axes, int ep, const std::string& block = "{}",
                        const std::string& strategy = "fsdp2") {
  run.strategy = strategy;
  run.section = strategy == "fsdp2" ? kFloat : "{}";
  run.axes = std::move(axes);
  int ranks = 1;
  for (const Axis& axis : run.axes)
    if (axis.name != "pp") ranks *= axis.size;
  if (ep == 1) return run;  // the engine asks a parallelizer only for an axis above 1
  run.views = {{"expert", {"dp", "cp", "tp"}, {{"ep_shard", ranks / ep}, {"ep", ep}}}};
  run.parallelizers.emplace_back("moe", "moe: " + block);
  return run;
}

inline std::string way(const std::string& dispatcher) {
  return "{dispatcher: " + dispatcher + "}";
}

}  // namespace heddle::tests
