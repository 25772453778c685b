// Context parallelism: equal to one rank by every method, beside every strategy, tensor parallelism and
// pipelines.
#include <gtest/gtest.h>

#include "plugins/context/over_cp.h"
#include "plugins/pipelines.h"

namespace heddle::tests {
namespace {

TEST(Context, EqualsOneRankUnderFsdp2) {
  for (const std::string model : {"llama", "qwen3"}) {
    const Outcome want = train(four_heads(model));
    for (const std::string& method : kMethods)
      for (const int cp : {2, 4}) {
        SCOPED_TRACE(model + " " + method + " " + std::to_string(cp));
        expect_close(train(over_cp(four_heads(model), mesh_of(1, 1, cp), method)), want);
      }
  }
}

TEST(Context, EqualsOneRankOnThreeRanks) {
  const Outcome want = train(four_heads());
  for (const std::string method : {"allgather", "ring"})
    expect_close(train(over_cp(four_heads(), mesh_of(1, 1, 3), method)), want);
}

TEST(Context, EqualsOneRankUnderHybridSharding) {
  const Outcome want = train(four_heads());
  for (const std::string& method : kMethods) {
    Training run = over_cp(four_heads(), mesh_of(2, 2, 2), method);
    run.microbatches = 1;
    expect_close(train(run), want);
  }
}

TEST(Context, EqualsOneRankUnderMegatronsStrategies) {
  Training one = four_heads();
  const Outcome want = train(one);
  one.microbatches = 3;
  for (const std::string& method : kMethods) {
    SCOPED_TRACE(method);
    expect_close(train(over_cp(one, mesh_of(1, 2, 2), method, "megatron")), want);
    expect_close(train(over_cp(one, {{"dp", 2}, {"cp", 2}, {"tp", 1}}, method, "megatron_fsdp")), want);
  }
}

TEST(Context, EqualsOneRankBesideTensorParallelism) {
  const Outcome want = train(four_heads());
  for (const std::string& method : kMethods) {
    Training run = four_heads();
    run.parallelizers = {{"tensor", kSequence}};
    expect_close(train(over_cp(run, mesh_of(1, 1, 2, 2), method)), want);
  }
}

TEST(Context, EqualsOneRankInAPipeline) {
  Training piped = pipeline("1f1b", 2, 3, 2);
  const ModelConfig heads = four_heads().model;
  piped.model.num_attention_heads = heads.num_attention_heads;
  piped.model.num_key_value_heads = heads.num_key_value_heads;
  piped.model.head_dim = heads.head_dim;
  piped.model.hidden_size = heads.hidden_size;
  const Outcome want = train([&] {
    Training one = piped;
    one.strategy = "single";
    one.section = "{}";
    one.axes.clear();
    one.make_schedule = nullptr;
    one.pipeline = {};
    return one;
  }());
  for (const std::string& method : kMethods)
    expect_close(train(over_cp(piped, mesh_of(1, 1, 2, 1, 2), method)), want);
  expect_close(train(over_cp(piped, mesh_of(1, 1, 4, 1, 2), "ring_ulysses")), want);
}

TEST(Context, EqualsOneRankWithActivationCheckpointing) {
  const Outcome want = train(four_heads());
  for (const auto kind : {ActivationCheckpointing::full, ActivationCheckpointing::selective})
    for (const std::string& method : kMethods) {
      Training run = over_cp(four_heads(), mesh_of(1, 1, 2), method);
      run.checkpointing = kind;
      expect_close(train(run), want);
    }
}

// The labels of all but the first tokens are left out: the last parts have none.
TEST(Context, EqualsOneRankWherePartsHaveNoLabel) {
  const auto few = [](Batch& batch, int) {
    batch.labels.narrow(1, 2, batch.labels.size(1) - 2).fill_(Batch::kIgnore);
  };
  Training one = four_heads();
  one.change_batch = few;
  const Outcome want = train(one);
  for (const std::string& method : kMethods)
    expect_close(train(over_cp(one, mesh_of(1, 1, 4), method)), want);
}

TEST(Context, TrainsInBfloat16AsOneRankDoes) {
  const std::string half = "mp_policy: {param_dtype: bfloat16, reduce_dtype: float32}";
  Training one = four_heads();
  one.strategy = "fsdp2";
  one.section = half;
  one.axes = mesh_of(1, 1, 1);
  const Outcome want = train(one);
  for (const std::string& method : kMethods) {
    Training run = over_cp(four_heads(), mesh_of(1, 1, 2), method);
    run.section = half;
    const Outcome got = train(run);
    for (size_t i = 0; i < want.losses.size(); ++i) {
      EXPECT_NEAR(got.losses[i] / want.losses[i], 1, 1e-2);
      EXPECT_NEAR(got.norms[i] / want.norms[i], 1, 5e-2);
    }
  }
}

TEST(Context, EqualsOneRankOnTwoDimensions) {
  Training one = four_heads();
  one.steps = 6;
  const Outcome want = train(one);
  for (const std::string method : {"ring_ulysses", "ring_ulysses, ulysses_size: 4"})
    expect_close(train(over_cp(one, mesh_of(1, 1, 8), method)), want);
}

TEST(Context, RefusesHeadsThatDoNotDivide) {
  EXPECT_EQ(error_of([] { train(over_cp(four_heads(), mesh_of(1, 1, 3), "ulysses")); }),
            "error[config] distributed.context.method: method ulysses needs a number of heads, of "
            "queries and of keys, that cp_size divides: a rank has 8, cp_size is 3\n"
            "  hint: set method: allgather or ring, or a cp_size that divides the heads");
}

}  // namespace
}  // namespace heddle::tests
