// The auxiliary loss over all ranks and the microbatches so far is the same on every topology that sees the
// same samples in a microbatch.
#include <gtest/gtest.h>

#include "plugins/moe/runs.h"

namespace heddle::tests {
namespace {

constexpr double kWeight = 0.5;  // heavy, so that a wrong loss shows

Training balanced(const std::string& model_type, int microbatches) {
  Training run = eight_experts(model_type);
  run.model.mixture.balance = {model::BalanceLoss::Form::global, kWeight};
  run.microbatches = microbatches;
  return run;
}

// Of all losses of a step, those of the router too.
void expect_same_losses(const Outcome& got, const Outcome& want) {
  expect_close(got, want);
  const std::vector<double>&own = got.sides.at("moe/aux_loss"), &whole = want.sides.at("moe/aux_loss");
  ASSERT_EQ(own.size(), whole.size());
  for (size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(own[i], whole[i], 1e-6 * std::abs(whole[i])) << i;
}

// As many microbatches on each rank as alone, of fewer rows.
Training dealt(Training run, const Ranks& ranks, int ep, const std::string& strategy = "fsdp2") {
  const int microbatches = run.microbatches;
  run = over_ep(std::move(run), ranks, ep, "{}", strategy);
  run.microbatches = microbatches;
  return run;
}

TEST(GlobalBalanceLoss, DiffersFromThatOfSingleMicrobatches) {
  Training other = balanced("mixtral", 2);
  other.model.mixture.balance.form = model::BalanceLoss::Form::layer;
  const Outcome global = train(balanced("mixtral", 2)), layer = train(other);
  EXPECT_GT(std::abs(global.norms[0] - layer.norms[0]), 1e-4);
}

// The first microbatch of a step has no other before it, in every step.
TEST(GlobalBalanceLoss, OfOneMicrobatchIsThatOfALayer) {
  Training other = balanced("mixtral", 1);
  other.model.mixture.balance.form = model::BalanceLoss::Form::layer;
  expect_same_losses(train(balanced("mixtral", 1)), train(other));
}

TEST(GlobalBalanceLoss, EqualsOneRankOverDataExpertsAndTensors) {
  const Outcome want = train(balanced("mixtral", 2));
  for (const std::string strategy : {"fsdp2", "ddp", "megatron_fsdp"})
    for (const auto& [dp, tp, ep] : {std::tuple{2, 1, 1}, {2, 1, 2}, {1, 2, 2}, {2, 2, 4}}) {
      SCOPED_TRACE(strategy + " " + std::to_string(dp) + std::to_string(tp) + std::to_string(ep));
      expect_same_losses(train(dealt(balanced("mixtral", 2), {dp, tp}, ep, strategy)), want);
    }
  const Outcome one = train(balanced("mixtral", 1));
  expect_same_losses(train(dealt(balanced("mixtral", 1), {4, 1, 1, 2}, 2)), one);  // two replicas
}

TEST(GlobalBalanceLoss, EqualsOneRankInPipelines) {
  const Outcome four = train(balanced("qwen2_moe", 4)), two = train(balanced("qwen2_moe", 2));
  for (const std::string schedule : {"1f1b", "zb1p"}) {
    expect_same_losses(train(staged(dealt(balanced("qwen2_moe", 4), {1, 1, 2}, 1), schedule)), four);
    Training both = staged(dealt(balanced("qwen2_moe", 2), {2, 1, 2}, 2), schedule);
    both.microbatches = 2;
    expect_same_losses(train(both), two);
  }
}

TEST(GlobalBalanceLoss, EqualsOneRankWithActivationCheckpointing) {
  const Outcome want = train(balanced("qwen2_moe", 2));
  for (const auto kind : {ActivationCheckpointing::full, ActivationCheckpointing::selective}) {
    Training run = dealt(balanced("qwen2_moe", 2), {2}, 2);
    run.checkpointing = kind;
    expect_same_losses(train(run), want);
  }
}

// The loss still reaches what is before the router, and its counts begin anew with each step.
TEST(GlobalBalanceLoss, OfFrozenRoutersEqualsOneRank) {
  const auto frozen = [](Training run) {
    for (const char* layer : {"0", "1"})
      run.frozen.push_back("model.layers." + std::string(layer) + ".mlp.gate.weight");
    return run;
  };
  const Outcome want = train(frozen(balanced("qwen3_moe", 2)));
  expect_same_losses(train(frozen(dealt(balanced("qwen3_moe", 2), {2}, 2))), want);
  Training other = frozen(balanced("qwen3_moe", 1));
  const Outcome one = train(other);
  other.model.mixture.balance.form = model::BalanceLoss::Form::layer;
  expect_same_losses(one, train(other));
}

TEST(GlobalBalanceLoss, EqualsOneRankBesideContextParallelism) {
  Training one = balanced("qwen3_moe", 2);
  one.change_batch = four_tokens;
  const Outcome want = train(one);
  for (const auto& [dp, ep] : {std::pair{1, 2}, {2, 2}}) {
    Training run = dealt(one, {dp * 2}, ep);
    run.axes = {{"pp", 1}, {"dp_replicate", 1}, {"dp_shard", dp}, {"cp", 2}, {"tp", 1}};
    run.parallelizers.emplace_back("context", "context: {method: allgather}");
    expect_same_losses(train(run), want);
  }
}

}  // namespace
}  // namespace heddle::tests
