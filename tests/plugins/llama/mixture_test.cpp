// Models with experts train under every strategy and topology as on one rank. Experts are ordinary
// parameters.
#include <gmock/gmock.h>

#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;
using Form = model::BalanceLoss::Form;

// Five experts of width 9, three per token; layer 1 is dense. Microbatches have three sequences, because an
// auxiliary loss is computed per microbatch.
Training mixture(const std::string& type = "qwen3_moe", Form form = Form::layer) {
  Training run = four_heads(type, 3);
  run.model.qk_norm = type == "qwen3_moe";
  run.model.qkv_bias = type == "qwen2_moe";
  decoder::Mixture& experts = run.model.mixture;
  experts.router.experts = 5, experts.router.rule.top_k = 3, experts.width = 9;
  run.model.dense = {1};
  experts.router.rule.normalise = type != "qwen2_moe";
  experts.shared_width = type == "qwen2_moe" ? 11 : 0, experts.shared_gate = true;
  experts.router.balance = {form, 0.05};
  experts.router.z_loss = 0.01;
  return run;
}

TEST(Mixture, LearnsAndReportsItsLosses) {
  const Outcome outcome = train(mixture());
  EXPECT_LT(outcome.losses.back(), 0.9 * outcome.losses.front());
  const std::vector<double>& load = outcome.sides.at("moe/load_0");
  ASSERT_EQ(load.size(), 12u * 5);
  EXPECT_EQ(load[0] + load[1] + load[2] + load[3] + load[4], 84 * 3);
  EXPECT_EQ(outcome.sides.count("moe/load_1"), 0u);  // dense
  EXPECT_GT(outcome.sides.at("moe/aux_loss")[0], 0.05 * 2 * 0.5);
  EXPECT_GT(outcome.sides.at("moe/z_loss")[0], 0);
}

TEST(Mixture, EqualsOneRankUnderEveryStrategyAndTensorParallelismOfItsAttention) {
  for (const char* type : {"qwen3_moe", "qwen2_moe"})
    expect_equal_on(mixture(type), {"[ddp|fsdp2|megatron] dp[2|4]", "single tp2([|sequence|overlapped])"});
}

TEST(Mixture, EqualsOneRankWithRecomputedUnits) {
  for (const Form form : {Form::layer, Form::sequence, Form::model})
    expect_equal_on(mixture("qwen2_moe", form), {"[single|fsdp2 dp2] [full|selective]"});
}

TEST(Mixture, EqualsOneRankInPipelines) {
  Training deep = mixture();
  deep.model.num_hidden_layers = 4;
  expect_equal_on(deep, {"single pp2([1f1b|interleavedzerobubble])[| full]"});
}

// Mixtures gather their tokens, so losses, token counts and norms cover all tokens.
TEST(Mixture, EqualsOneRankWithSplitTokenRows) {
  for (const Form form : {Form::layer, Form::sequence, Form::model})
    expect_equal_on(mixture("qwen2_moe", form),
                    {"single tp[2|4](sequence)[| full| selective]", "fsdp2 dp2 tp2([sequence|overlapped])"});
}

TEST(Mixture, RefusesALossOverAllLayersInAPipeline) {
  EXPECT_THAT(error_of([] { train(on(mixture("qwen3_moe", Form::model), "single pp2(1f1b)")); }),
              HasSubstr("use router_aux_loss_type: layer"));
}

}  // namespace
}  // namespace heddle::tests
