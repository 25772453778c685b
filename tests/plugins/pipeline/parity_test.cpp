// A pipeline trains like `single` with any number of microbatches, calls, ranks and stages.
#include <gtest/gtest.h>

#include <algorithm>

#include "heddle/schedule/simulate.h"
#include "plugins/pipelines.h"
#include "plugins/toy_training.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("Of/ExpertsInASchedule*:Pipeline.EqualsSingleWithAnyNumber*");

TEST(Pipeline, EqualsSingleWithAnyNumberOfMicrobatchesAndCalls) {
  expect_equal_on(single_model(), {"single pp[2|4]([gpipe|1f1b]) rows[12|4|3|1]",
                                   "single pp2([gpipe|1f1b]) rows2 calls[2|3]"});
}

TEST(Pipeline, EqualsSingleWithTwoStagesPerRank) {
  for (const Placement placement : {Placement::loop, Placement::v})
    for (const std::string& line : alternatives("single pp[1|2] rows[6 calls2|3]")) {
      SCOPED_TRACE(line);
      Training run = on(single_model(), line);
      run.make_schedule = made<BreadthFirst>(2, placement);
      expect_close(train(run), alone());
    }
}

TEST(Pipeline, EqualsSingleWithDeferredWeightGradients) {
  for (const int lag : {0, 1, 12})
    for (const std::string& line : alternatives("single pp[2|4] rows2 calls[1|2]")) {
      SCOPED_TRACE(line + ", lag " + std::to_string(lag));
      Training run = on(single_model(), line);
      run.make_schedule = made<LateWeights>(lag);
      expect_close(train(run), alone());
    }
}

TEST(Pipeline, EqualsSingleWithFrozenParametersAndAFrozenFirstStage) {
  Training want = single_model();
  want.frozen = {"model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight"};
  for (const char* unit : {"model.layers.0.", "model.layers.1."})
    for (const char* name :
         {"input_layernorm.weight", "post_attention_layernorm.weight", "self_attn.q_proj.weight",
          "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.q_proj.bias",
          "self_attn.k_proj.bias", "self_attn.v_proj.bias", "self_attn.o_proj.weight", "mlp.gate_proj.weight",
          "mlp.up_proj.weight", "mlp.down_proj.weight"})
      want.frozen.push_back(std::string(unit) + name);
  expect_equal_on(want, {"single pp4(1f1b)"});  // the first of four stages has two layers
}

TEST(Pipeline, AcceptsUnitsOfAForeignModel) {
  Toy model;
  model.meta = false;
  model.foreign = true;
  model.layers = 4;
  expect_equal_on(toy("single", {}, "", model), {"single pp2(1f1b)"});
}

TEST(Pipeline, RefusesABatchThatItCannotSplit) {
  EXPECT_EQ(error_of([&] { train(pipeline("gpipe", 2, 5)); }),
            "error[config] distributed.pipeline.pp_microbatch_size: local_batch_size must be divisible by "
            "microbatch_size: 12 and 5\n"
            "  hint: change step_scheduler.local_batch_size or pp_microbatch_size");
}

TEST(Pipeline, NeedsASchedule) {
  EXPECT_EQ(error_of([&] { train(pipeline("", 2, 5)); }),
            "error[mesh] parallel: an axis pp of 2 ranks, and no schedule to run them\n"
            "  hint: set Plan::schedule, or leave the axis pp at 1");
}

TEST(Pipeline, GivesTheSameBitsTwice) {
  expect_same_bits_twice(pipeline("1f1b", 2, 2));
}

TEST(Pipeline, GivesTheSameBitsWithAPoolOfReceiveBuffers) {
  for (const int slack : {0, 3}) {
    Training run = pipeline("1f1b", 4, 2);
    run.pipeline.keep_receive_buffers = true;
    run.pipeline.buffer_slack = slack;
    expect_bit_equal(train(run), train(pipeline("1f1b", 4, 2)));
  }
}

TEST(Pipeline, EqualsSingleWhenTheSequenceLengthChangesBetweenCallsAndSteps) {
  // The batches of a step differ in length. A pipeline and one rank split the same sequences.
  Training want = single_model();
  want.microbatches = 2;
  want.change_batch = [](Batch& batch, int slice) {
    const int64_t length = slice == 0 ? 7 : 5;
    batch.tokens = batch.tokens.narrow(1, 0, length).contiguous();
    batch.labels = batch.labels.narrow(1, 0, length).contiguous();
  };
  expect_equal_on(want, {"single pp2(1f1b) rows2 calls2"});
}

TEST(Pipeline, SendsActivationsInTheConfiguredDtype) {
  Training run = pipeline("1f1b", 2, 3);
  run.pipeline.dtype = "bfloat16";
  run.steps = 2;
  const Outcome rounded = train(run);
  EXPECT_NE(rounded.losses.front(), alone().losses.front());
  EXPECT_NEAR(rounded.losses.front(), alone().losses.front(), 2e-2 * alone().losses.front());
  run.pipeline.dtype = "float64";  // wider than the activations: no loss of precision
  run.steps = 12;
  expect_close(train(run), alone());
}

TEST(Pipeline, DividesGradientsByTheMicrobatchesOfACallIfConfigured) {
  Training run = pipeline("gpipe", 2, 3);
  run.pipeline.gradients = GradientScale::by_microbatches;
  run.steps = 1;
  const Outcome scaled = train(run);
  EXPECT_NEAR(scaled.losses[0], alone().losses[0], 2e-5 * alone().losses[0]);
  EXPECT_NEAR(scaled.norms[0], alone().norms[0] / 4, 2e-4 * alone().norms[0]);
}

TEST(Pipeline, KeepsAsManyMicrobatchesInFlightAsItsSchedule) {
  for (const char* schedule : {"gpipe", "1f1b"})
    for (const int rows : {4, 1}) {
      Training run = pipeline(schedule, 4, rows);
      run.steps = 2;
      const auto plan = run.make_schedule()->plan(4, 4, 12 / rows);
      EXPECT_EQ(train(run).peaks, schedule::peak_alive(plan)) << schedule;
    }
}

TEST(Pipeline, WarnsOfTheBubbleOnce) {
  const char* text =
      "Number of microbatches (2) is less than the total number of stages (4) which may result in a bubble "
      "in "
      "the pipeline.";
  Training run = pipeline("1f1b", 4, 6);
  run.steps = 3;
  EXPECT_EQ(train(run).warnings, std::vector<std::string>{text});
  EXPECT_TRUE(train(pipeline("1f1b", 2, 3)).warnings.empty());
}

// Three sequences per microbatch on every topology, because a balance loss is a mean over a microbatch.
class ExpertsInASchedule : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Of, ExpertsInASchedule, ::testing::ValuesIn(kEverySchedule), name_of_schedule);

TEST_P(ExpertsInASchedule, EqualOneRank) {
  for (const auto& [layers, ranks] : {std::pair{5, "dp2 ep2 pp2("}, {9, "pp4("}}) {
    Training one = eight_experts("qwen2_moe");
    one.model.num_hidden_layers = layers;
    one.sequences = 48, one.microbatches = 16, one.steps = 3;
    expect_equal_on(one, {std::string("fsdp2 ") + ranks + GetParam() + ")[| full]"});
  }
}

}  // namespace
}  // namespace heddle::tests
