// Dropout of adapters and noise on embeddings: the same numbers on every topology, none outside of training.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include "heddle/nn/dropout.h"
#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;

const std::string kShards = "{strategy: fsdp2, mp_policy: {param_dtype: float32, reduce_dtype: float32}";
const std::string kRandom =
    "peft: {dim: 3, dropout: 0.4, dropout_position: pre}\nneftune: {noise_alpha: 9}\n";

void expect_equal(const Told& got, const Told& want) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], 2e-5 * want.losses[i]);
    EXPECT_NEAR(got.norms[i], want.norms[i], 2e-4 * want.norms[i]);
  }
}

TEST(Draws, AreUniformAndDroppedWithTheirProbability) {
  const at::Tensor keys = at::arange(400, at::kLong);
  const at::Tensor draws = model::uniform_draws(keys, 250, model::draw_salt("a"));
  EXPECT_GE(draws.min().item<double>(), 0);
  EXPECT_LT(draws.max().item<double>(), 1);
  EXPECT_NEAR(draws.mean().item<double>(), 0.5, 0.005);
  EXPECT_NEAR(draws.var().item<double>(), 1.0 / 12, 0.002);
  EXPECT_FALSE(draws.equal(model::uniform_draws(keys, 250, model::draw_salt("b"))));
  at::Tensor x = at::ones({400, 250}).set_requires_grad(true);
  const at::Tensor y = model::dropout(x, keys, 0.25, 7);
  EXPECT_NEAR(y.eq(0).to(at::kDouble).mean().item<double>(), 0.25, 0.01);
  EXPECT_NEAR(y.max().item<double>(), 1 / 0.75, 1e-6);
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(y.detach()));
  EXPECT_EQ(model::dropout(x, keys, 1, 7).abs().sum().item<double>(), 0);
  EXPECT_NE(model::draw_key(1, 2, 3, 4), model::draw_key(1, 2, 4, 3));
}

TEST(LoraDropout, IsTheSameOnEveryTopology) {
  WholeRuns runs;
  const Told one = runs.train({"run", 1, "{strategy: single}", kRandom}, "one", 4);
  EXPECT_NE(one.losses, runs.train({"run", 1, "{strategy: single}"}, "plain", 4).losses);
  expect_equal(runs.train({"run", 2, kShards + ", activation_checkpointing: full}", kRandom}, "shards", 4),
               one);
  const std::string stages = "pp_size: 2, pipeline: {pp_schedule: zb1p, pp_microbatch_size: 1}";
  expect_equal(runs.train({"run", 2, "{strategy: single, " + stages + "}", kRandom}, "stages", 4), one);
  const std::string alone = "peft: {dim: 3, dropout: 0.4}\n";
  expect_equal(runs.train({"run", 2, kShards + ", cp_size: 2}", alone}, "parts", 4),
               runs.train({"run", 1, "{strategy: single}", alone}, "whole", 4));
}

TEST(LoraDropout, RepeatsItsNumbersWhereARunResumes) {
  WholeRuns runs;
  const Topology topology{"run", 1, "{strategy: single}", kRandom};
  const Told straight = runs.train(topology, "straight", 8);
  runs.train(topology, "resumed", 4);
  EXPECT_EQ(runs.train(topology, "resumed", 8, "LATEST").losses, straight.losses);
  // Another share changes numbers, not the meaning of what was saved.
  runs.train(topology, "other", 4);
  std::vector<std::string> refusals;
  runs.train({"run", 1, "{strategy: single}", "peft: {dim: 3, dropout: 0.1}\nneftune: {noise_alpha: 9}\n"},
             "other", 8, "LATEST", &refusals);
  EXPECT_THAT(refusals, ::testing::IsEmpty());
}

TEST(LoraDropout, IsRefusedUnderTensorParallelism) {
  WholeRuns runs;
  std::vector<std::string> refusals;
  runs.train({"run", 2, "{strategy: single, tp_size: 2}", kRandom}, "run", 1, "", &refusals);
  ASSERT_FALSE(refusals.empty());
  EXPECT_THAT(refusals[0], HasSubstr("dropout under tensor parallelism is not built yet"));
}

TEST(Neftune, IsTheSameWithASplitVocabulary) {
  WholeRuns runs;
  for (const std::string section : {"neftune: {noise_alpha: 9}\n", "neftune: 9\n"}) {
    const Told one = runs.train({"run", 1, "{strategy: single}", section}, "one", 3);
    expect_equal(runs.train({"run", 2, "{strategy: single, tp_size: 2}", section}, "split", 3), one);
  }
  std::vector<std::string> refusals;
  runs.train({"run", 1, "{strategy: single}", "neftune: {noise_alpha: -1}\n"}, "run", 1, "", &refusals);
  ASSERT_FALSE(refusals.empty());
  EXPECT_THAT(refusals[0], HasSubstr("neftune.noise_alpha: noise_alpha must be non-negative, got -1"));
}

}  // namespace
}  // namespace heddle::tests
