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

TEST(GlobalBalanceLoss, DiffersFromThatOfSingleMicrobatches) {
  Training other = balanced("mixtral", 2);
  other.model.mixture.balance.form = model::BalanceLoss::Form::layer;
  const Outcome global = train(balanced("mixtral", 2)), layer = train(other);
  EXPECT_GT(std::abs(global.norms[0] - layer.norms[0]), 1e-4);
}

// The first microbatch of a step has no other before it, in every step.
TEST(GlobalBalanceLoss, EqualsTheLayersLossForOneMicrobatch) {
  Training other = balanced("mixtral", 1);
  other.model.mixture.balance.form = model::BalanceLoss::Form::layer;
  expect_same_losses(train(balanced("mixtral", 1)), train(other));
}

// As many microbatches on each rank as alone, of fewer rows.
TEST(GlobalBalanceLoss, EqualsOneRankOverDataExpertsAndTensors) {
  expect_equal_on(balanced("mixtral", 2),
                  {"[fsdp2|ddp|megatron_fsdp] [dp2|dp2 ep2|tp2 ep2|dp2 tp2 ep4] calls2"}, expect_same_losses);
  expect_equal_on(balanced("mixtral", 1), {"fsdp2 dp4 replicas2 ep2"}, expect_same_losses);
}

TEST(GlobalBalanceLoss, EqualsOneRankInPipelines) {
  expect_equal_on(balanced("qwen2_moe", 4), {"fsdp2 pp2([1f1b|zb1p])"}, expect_same_losses);
  expect_equal_on(balanced("qwen2_moe", 2), {"fsdp2 dp2 ep2 pp2([1f1b|zb1p]) calls2"}, expect_same_losses);
}

TEST(GlobalBalanceLoss, EqualsOneRankWithActivationCheckpointing) {
  expect_equal_on(balanced("qwen2_moe", 2), {"fsdp2 dp2 ep2 calls2 [full|selective]"}, expect_same_losses);
}

// The loss still reaches what is before the router, and its counts begin anew with each step.
TEST(GlobalBalanceLoss, EqualsOneRankWithFrozenRouters) {
  const auto frozen = [](int microbatches) {
    Training run = balanced("qwen3_moe", microbatches);
    run.frozen = {"model.layers.0.mlp.gate.weight", "model.layers.1.mlp.gate.weight"};
    return run;
  };
  expect_equal_on(frozen(2), {"fsdp2 dp2 ep2 calls2"}, expect_same_losses);
  Training other = frozen(1);
  other.model.mixture.balance.form = model::BalanceLoss::Form::layer;
  expect_same_losses(train(frozen(1)), train(other));
}

TEST(GlobalBalanceLoss, EqualsOneRankBesideContextParallelism) {
  expect_equal_on(of_four_tokens(balanced("qwen3_moe", 2)), {"fsdp2 cp2(allgather) [dp1|dp2] ep2 calls2"},
                  expect_same_losses);
}

}  // namespace
}  // namespace heddle::tests
