// Dropout of adapters and noise on embeddings: equal on every topology, and off outside of training.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include "heddle/nn/dropout.h"
#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;

const std::string kRandom =
    "peft: {dim: 3, dropout: 0.4, dropout_position: pre}\nneftune: {noise_alpha: 9}\n";

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
  const WholeRuns runs;
  const Told plain = runs.train({"run", 1, "{strategy: single}"}, "plain", 5);
  expect_alike_on(runs, kRandom,
                  {{2, kFsdp2InFp32 + ", activation_checkpointing: full}"},
                   {2, "{strategy: single, " + two_stages("zb1p") + "}"}});
  EXPECT_NE(read_metrics(runs / "alone/training.jsonl").losses, plain.losses);
  expect_alike_on(runs, "peft: {dim: 3, dropout: 0.4}\n", {{2, kFsdp2InFp32 + ", cp_size: 2}"}});
}

TEST(LoraDropout, RepeatsItsDrawsAfterResuming) {
  WholeRuns runs;
  const Topology topology{"run", 1, "{strategy: single}", kRandom};
  expect_resumes(runs, topology);
  // Another dropout probability does not invalidate the saved state.
  runs.train(topology, "other", 4);
  EXPECT_EQ(runs.refusal(
                {"run", 1, "{strategy: single}", "peft: {dim: 3, dropout: 0.1}\nneftune: {noise_alpha: 9}\n"},
                "other", "LATEST"),
            "");
}

TEST(LoraDropout, IsRefusedUnderTensorParallelism) {
  EXPECT_THAT(WholeRuns().refusal({"run", 2, "{strategy: single, tp_size: 2}", kRandom}),
              HasSubstr("dropout under tensor parallelism is not built yet"));
}

TEST(Neftune, IsTheSameWithASplitVocabulary) {
  WholeRuns runs;
  for (const std::string section : {"neftune: {noise_alpha: 9}\n", "neftune: 9\n"})
    expect_alike_on(runs, section, {{2, "{strategy: single, tp_size: 2}"}});
}

}  // namespace
}  // namespace heddle::tests
