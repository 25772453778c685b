// Models with experts train under every strategy and topology as on one rank; experts are parameters like
// others.
#include <gtest/gtest.h>

#include "plugins/across.h"

namespace heddle::tests {
namespace {

using Form = model::BalanceLoss::Form;

// Five experts of width 9, three for each token; layer 1 is dense. Microbatches of three sequences, because
// an auxiliary loss is one of a microbatch.
Training mixture(const std::string& type = "qwen3_moe", Form form = Form::layer) {
  Training run;
  run.model = four_heads().model;
  run.model.model_type = type;
  run.model.qk_norm = type == "qwen3_moe";
  run.model.qkv_bias = type == "qwen2_moe";
  run.model.num_hidden_layers = 3;
  llama::Mixture& experts = run.model.mixture;
  experts.experts = 5;
  experts.top_k = 3;
  experts.width = 9;
  experts.dense_layers = {1};
  experts.normalise = type != "qwen2_moe";
  experts.shared_width = type == "qwen2_moe" ? 11 : 0;
  experts.balance = {form, 0.05};
  experts.z_loss = 0.01;
  run.microbatches = 4;
  return run;
}

// With the microbatches of one rank.
Training mixture_on(const std::string& strategy, int ranks, const std::string& type,
                    Form form = Form::layer) {
  Training run = across(mixture(type, form), strategy, {ranks});
  run.microbatches /= ranks;
  return run;
}

TEST(Mixture, LearnsWithItsLossesAndReportsThem) {
  const Outcome outcome = train(mixture());
  EXPECT_LT(outcome.losses.back(), 0.9 * outcome.losses.front());
  const std::vector<double>& load = outcome.sides.at("moe/load_0");
  ASSERT_EQ(load.size(), 12u * 5);
  EXPECT_EQ(load[0] + load[1] + load[2] + load[3] + load[4], 84 * 3);
  EXPECT_EQ(outcome.sides.count("moe/load_1"), 0u);  // dense
  EXPECT_GT(outcome.sides.at("moe/aux_loss")[0], 0.05 * 2 * 0.5);
  EXPECT_GT(outcome.sides.at("moe/z_loss")[0], 0);
}

TEST(Mixture, EqualsOneRankUnderEveryStrategy) {
  for (const char* type : {"qwen3_moe", "qwen2_moe"}) {
    const Outcome want = train(mixture(type));
    for (const char* strategy : {"ddp", "fsdp2", "megatron"})
      for (const int ranks : {2, 4}) {
        SCOPED_TRACE(std::string(type) + " " + strategy + " on " + std::to_string(ranks));
        expect_close(train(mixture_on(strategy, ranks, type)), want);
      }
  }
}

TEST(Mixture, EqualsOneRankWhereUnitsAreComputedAgain) {
  for (const Form form : {Form::layer, Form::sequence, Form::model}) {
    const Outcome want = train(mixture("qwen2_moe", form));
    for (const auto mode : {ActivationCheckpointing::full, ActivationCheckpointing::selective}) {
      SCOPED_TRACE(static_cast<int>(form));
      Training run = mixture("qwen2_moe", form);
      run.checkpointing = mode;
      expect_close(train(run), want);
      run = mixture_on("fsdp2", 2, "qwen2_moe", form);
      run.checkpointing = mode;
      expect_close(train(run), want);
    }
  }
}

TEST(Mixture, EqualsOneRankInPipelines) {
  const auto deep = [] {
    Training run = mixture();
    run.model.num_hidden_layers = 4;
    return run;
  };
  const Outcome want = train(deep());
  for (const char* schedule : {"1f1b", "interleavedzerobubble"})
    for (const auto mode : {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
      SCOPED_TRACE(schedule);
      Training run = staged(across(deep(), "single", {1, 1, 2}), schedule);
      run.checkpointing = mode;
      expect_close(train(run), want);
    }
}

TEST(Mixture, EqualsOneRankUnderTensorParallelismOfItsAttention) {
  for (const char* type : {"qwen3_moe", "qwen2_moe"}) {
    SCOPED_TRACE(type);
    expect_close(train(over_tp(mixture(type), 2)), train(mixture(type)));
  }
}

TEST(Mixture, ThatSplitsTokenRowsIsRefused) {
  const std::string error = error_of([] { train(over_tp(mixture(), 2, kSequence)); });
  EXPECT_NE(
      error.find("sequence_parallel cannot tell what 'model.layers.0.mlp.gate' (router) does with a part "
                 "of the tokens"),
      std::string::npos)
      << error;
}

TEST(Mixture, WithALossOverAllLayersIsRefusedInAPipeline) {
  const std::string error = error_of([] {
    train(staged(across(mixture("qwen3_moe", Form::model), "single", {1, 1, 2}), "1f1b"));
  });
  EXPECT_NE(error.find("use router_aux_loss_type: layer"), std::string::npos) << error;
}

}  // namespace
}  // namespace heddle::tests
