// The auxiliary loss over all ranks and previous microbatches is equal on all topologies with the same
// samples per microbatch.
#include <gtest/gtest.h>

#include "plugins/moe/runs.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("GlobalBalanceLoss.EqualsOneRankOver*");

constexpr double kWeight = 0.5;  // large, so that a wrong loss is visible

Training balanced(const std::string& model_type, int microbatches) {
  Training run = eight_experts(model_type);
  run.model.mixture.router.balance = {model::BalanceLoss::Form::global, kWeight};
  run.microbatches = microbatches;
  return run;
}

// Compares all losses of a step, including the router's.
void expect_same_losses(const Outcome& got, const Outcome& want) {
  expect_close(got, want);
  const std::vector<double>&own = got.sides.at("moe/aux_loss"), &whole = want.sides.at("moe/aux_loss");
  ASSERT_EQ(own.size(), whole.size());
  for (size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(own[i], whole[i], 1e-6 * std::abs(whole[i])) << i;
}

TEST(GlobalBalanceLoss, DiffersFromTheLossOfSingleMicrobatches) {
  Training other = balanced("mixtral", 2);
  other.model.mixture.router.balance.form = model::BalanceLoss::Form::layer;
  const Outcome global = train(balanced("mixtral", 2)), layer = train(other);
  EXPECT_GT(std::abs(global.norms[0] - layer.norms[0]), 1e-4);
}

// The first microbatch of a step has no previous one, in every step.
TEST(GlobalBalanceLoss, EqualsTheLayersLossForOneMicrobatch) {
  Training other = balanced("mixtral", 1);
  other.model.mixture.router.balance.form = model::BalanceLoss::Form::layer;
  expect_same_losses(train(balanced("mixtral", 1)), train(other));
}

// Each rank has as many microbatches as the single rank, with fewer rows.
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

// The loss still reaches the layers before the router, and its counts start from zero in each step.
TEST(GlobalBalanceLoss, EqualsOneRankWithFrozenRouters) {
  const auto frozen = [](int microbatches) {
    Training run = balanced("qwen3_moe", microbatches);
    run.frozen = {"model.layers.0.mlp.gate.weight", "model.layers.1.mlp.gate.weight"};
    return run;
  };
  expect_equal_on(frozen(2), {"fsdp2 dp2 ep2 calls2"}, expect_same_losses);
  Training other = frozen(1);
  other.model.mixture.router.balance.form = model::BalanceLoss::Form::layer;
  expect_same_losses(train(frozen(1)), train(other));
}

TEST(GlobalBalanceLoss, EqualsOneRankWithContextParallelism) {
  expect_equal_on(of_four_tokens(balanced("qwen3_moe", 2)), {"fsdp2 cp2(allgather) [dp1|dp2] ep2 calls2"},
                  expect_same_losses);
}

}  // namespace
}  // namespace heddle::tests
