// Context parallelism: equal to one rank by every method, beside every strategy, tensor parallelism and
// pipelines.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "plugins/context/sequence.h"
#include "plugins/pipelines.h"
#include "plugins/tensor_training.h"

namespace heddle::tests {
namespace {

using Methods = std::vector<std::string>;
const Methods kMethods = {"allgather", "ring", "ulysses"};

std::string block(const std::string& method) {
  return "context: {method: " + method + "}";
}

std::vector<Axis> mesh_of(int replicas, int shards, int cp, int tp = 1, int pp = 1) {
  return {{"pp", pp}, {"dp_replicate", replicas}, {"dp_shard", shards}, {"cp", cp}, {"tp", tp}};
}

// Sequences of seven tokens: no number of ranks divides them.
Training over_cp(Training run, std::vector<Axis> axes, const std::string& method,
                 const std::string& strategy = "fsdp2") {
  run.strategy = strategy;
  run.section = strategy == "fsdp2" ? kFloat : "{}";
  run.axes = std::move(axes);
  run.parallelizers.emplace_back("context", block(method));
  return run;
}

TEST(ContextSequence, IsDealtFromBothEnds) {
  using context::Cut;
  const at::Tensor x = at::arange(1, 8).view({1, 7});
  const auto own = [&](int rank, int ranks, Cut cut) {
    return context::own_columns(x, 9, {rank, ranks, cut});
  };
  EXPECT_TRUE(at::equal(own(0, 2, Cut::head_tail), at::tensor({1, 2, 7, 9}, at::kLong).view({1, 4})));
  EXPECT_TRUE(at::equal(own(1, 2, Cut::head_tail), at::tensor({3, 4, 5, 6}, at::kLong).view({1, 4})));
  EXPECT_TRUE(at::equal(own(2, 4, Cut::head_tail), at::tensor({3, 6}, at::kLong).view({1, 2})));
  EXPECT_TRUE(at::equal(own(1, 2, Cut::contiguous), at::tensor({5, 6, 7, 9}, at::kLong).view({1, 4})));
}

TEST(Context, EqualsOneRankUnderFsdp2) {
  for (const std::string& model : {"llama", "qwen3"}) {
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
  for (const std::string& method : {"allgather", "ring"})
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
  const Outcome want = train([&] {
    Training one = piped;
    one.strategy = "single";
    one.section = "{}";
    one.axes.clear();
    one.make_schedule = nullptr;
    one.pipeline = {};
    return one;
  }());
  for (const std::string& method : {"allgather", "ring"})
    expect_close(train(over_cp(piped, mesh_of(1, 1, 2, 1, 2), method)), want);
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

TEST(Context, RefusesHeadsThatDoNotDivide) {
  EXPECT_EQ(error_of([] { train(over_cp(four_heads(), mesh_of(1, 1, 3), "ulysses")); }),
            "error[config] distributed.context.method: ulysses deals heads: a rank has 8 of them (of the "
            "queries, or of the keys and values), which cp_size 3 does not divide\n"
            "  hint: set method: allgather or ring, or a cp_size that divides the heads");
}

TEST(Context, RefusesDocuments) {
  Training run = over_cp(four_heads(), mesh_of(1, 1, 2), "ring");
  run.change_batch = [](Batch& batch, int) {
    batch.documents = at::arange(0, batch.tokens.numel() + 1, 7, at::kInt);
  };
  EXPECT_EQ(error_of([&] { train(run); }),
            "error[not_built] context: documents within a sequence are not built under context parallelism\n"
            "  hint: leave cp_size at 1 for packed documents");
}

}  // namespace
}  // namespace heddle::tests
