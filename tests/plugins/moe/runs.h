// Runs of small mixtures of experts, on one rank and under expert parallelism.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "plugins/tensor_training.h"

namespace heddle::tests {

// Eight experts that a token chooses two of, in two layers, with a balance loss; four microbatches of 21
// tokens.
inline Training eight_experts(const std::string& model_type = "qwen3_moe", int64_t top_k = 2) {
  Training run = four_heads(model_type);
  run.model.qk_norm = model_type == "qwen3_moe";
  llama::Mixture& mixture = run.model.mixture;
  mixture.experts = 8, mixture.top_k = top_k, mixture.width = 5;
  mixture.normalise = top_k > 1;
  mixture.balance = {model::BalanceLoss::Form::layer, 0.05};
  if (model_type == "qwen2_moe") mixture.shared_width = 9;
  return run;
}

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

// With the view that the engine makes of ep_size. The microbatches are those of one rank.
inline Training over_ep(Training run, const Ranks& ranks, int ep, const std::string& block = "{}",
                        const std::string& strategy = "fsdp2") {
  run.strategy = strategy;
  run.section = strategy == "fsdp2" ? kFloat : "{}";
  run.axes = mesh_for(strategy, ranks);
  run.microbatches /= ranks.dp;
  if (ranks.tp > 1) run.parallelizers.emplace_back("tensor", "{}");
  if (ep == 1) return run;  // the engine asks a parallelizer only for an axis above 1
  run.views = {{"expert", {"dp", "cp", "tp"}, {{"ep_shard", ranks.dp * ranks.tp / ep}, {"ep", ep}}}};
  run.parallelizers.emplace_back("moe", "moe: " + block);
  return run;
}

// Experts of an even width, split over `etp` ranks as well. The table is that of the plugin.
inline Training over_etp(Training run, const Ranks& ranks, int ep, int etp, const std::string& block = "{}",
                         const std::string& strategy = "fsdp2") {
  run = over_ep(std::move(run), ranks, 1, block, strategy);
  const Needs needs = make_parallelizer("moe", "{}")->needs();
  run.table.add(needs.new_axes, needs.new_views, "the parallelizer 'moe'");
  const int rest = ranks.dp * ranks.tp / (ep * etp);
  run.views = {{"expert", {"dp", "cp", "tp"}, {{"ep_shard", rest}, {"ep", ep}, {"etp", etp}}}};
  run.parallelizers.emplace_back("moe", "moe: " + block);
  return run;
}

// The outcome without the measures of dropped choices, which one rank without a capacity does not have.
inline Outcome without_drops(Outcome outcome) {
  for (const char* name : {"moe/dropped_choices", "moe/dropped_fraction"}) {
    EXPECT_TRUE(outcome.sides.contains(name)) << name;
    for (const double value : outcome.sides[name]) EXPECT_EQ(value, 0) << name;
    outcome.sides.erase(name);
  }
  return outcome;
}

inline std::string way(const std::string& dispatcher) {
  return "{dispatcher: " + dispatcher + "}";
}

}  // namespace heddle::tests
