// Runs of small mixtures of experts, on one rank and under expert parallelism.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "plugins/across.h"

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

// With the view that the engine makes of ep_size. The microbatches are those of one rank.
inline Training over_ep(Training run, const Ranks& ranks, int ep, const std::string& block = "{}",
                        const std::string& strategy = "fsdp2") {
  run = across(std::move(run), strategy, ranks);
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

// Sequences of four tokens, so that context parallelism pads none.
inline void four_tokens(Batch& batch, int) {
  batch.tokens = batch.tokens.narrow(1, 3, 4).contiguous();
  batch.labels = batch.labels.narrow(1, 3, 4).contiguous();
}

inline std::string way(const std::string& dispatcher) {
  return "{dispatcher: " + dispatcher + "}";
}

}  // namespace heddle::tests
