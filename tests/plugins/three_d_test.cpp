// Three dimensions at once: data, tensor and pipeline parallelism on eight ranks train to the numbers of one.
#include <gtest/gtest.h>

#include "plugins/pipelines.h"
#include "plugins/tensor_training.h"

namespace heddle::tests {
namespace {

Training one_rank_3d() {
  Training run = four_heads("qwen3");
  run.model.num_hidden_layers = 5;
  return run;
}

const Outcome& wanted_3d() {
  static const Outcome outcome = train(one_rank_3d());
  return outcome;
}

// [pp, dp, tp] = 2 x 2 x 2; rows of a microbatch are 1.
Training cube(const std::string& strategy, const std::string& fields, int calls = 1,
              const std::string& schedule = "1f1b") {
  Training run = one_rank_3d();
  run.microbatches = calls;
  run.strategy = strategy;
  if (strategy == "fsdp2") run.section = kFloat;
  if (strategy == "fsdp2")
    run.axes = {{"pp", 2}, {"dp_replicate", 1}, {"dp_shard", 2}, {"cp", 1}, {"tp", 2}};
  else
    run.axes = {{"pp", 2}, {"dp", 2}, {"tp", 2}};
  run.parallelizers = {{"tensor", fields}};
  run.pipeline.microbatch_size = 1;
  run.make_schedule = [schedule] { return make_schedule(schedule); };
  return run;
}

TEST(ThreeD, EqualsOneRankUnderEveryStrategyAndSchedule) {
  for (const char* strategy : {"fsdp2", "ddp"})
    for (const char* schedule : {"1f1b", "gpipe"})
      for (const std::string& fields : {std::string("{}"), kSequence}) {
        SCOPED_TRACE(std::string(strategy) + ", " + schedule + ", " + fields);
        expect_close(train(cube(strategy, fields, 1, schedule)), wanted_3d());
      }
}

TEST(ThreeD, AccumulatesCallsOfTheSchedule) {
  for (const char* strategy : {"fsdp2", "ddp"}) {
    SCOPED_TRACE(strategy);
    expect_close(train(cube(strategy, kSequence, 2)), wanted_3d());
  }
}

TEST(ThreeD, EqualsOneRankWithLateWeightsAndWithTwoStagesOnARank) {
  for (const char* strategy : {"fsdp2", "ddp"}) {
    SCOPED_TRACE(strategy);
    Training late = cube(strategy, "{}");
    late.make_schedule = made<LateWeights>(1);
    expect_close(train(late), wanted_3d());
    Training v = cube(strategy, kSequence);
    v.make_schedule = made<BreadthFirst>(2, Placement::v);
    expect_close(train(v), wanted_3d());
  }
}

TEST(ThreeD, EqualsOneRankWithRecomputedUnits) {
  for (const char* strategy : {"fsdp2", "ddp"}) {
    SCOPED_TRACE(strategy);
    Training run = cube(strategy, kSequence);
    for (const auto mode : {ActivationCheckpointing::selective, ActivationCheckpointing::full}) {
      run.checkpointing = mode;
      expect_close(train(run), wanted_3d());
    }
    run.make_schedule = made<LateWeights>(1);
    expect_close(train(run), wanted_3d());
  }
}

// Compute in bfloat16, sums in float32. Rounding depends on how sums are split over tp, and on nothing else.
TEST(ThreeD, ComputesInBfloat16AsWithoutStagesAndShards) {
  const std::string half = "mp_policy: {param_dtype: bfloat16, reduce_dtype: float32}";
  for (const int tp : {1, 2}) {
    SCOPED_TRACE(std::to_string(tp) + " tensor-parallel ranks");
    Training few = one_rank_3d(), many = cube("fsdp2", "{}");
    few.strategy = "fsdp2";
    few.section = many.section = half;
    few.microbatches = 12;  // those of the pipeline, one by one
    few.axes = {{"dp_shard", 1}, {"tp", tp}};
    many.axes = {{"pp", 2}, {"dp_shard", 2}, {"tp", tp}};
    many.pipeline.dtype = "bfloat16";
    if (tp == 2) few.parallelizers = many.parallelizers;
    if (tp == 1) many.parallelizers.clear();
    expect_close(train(many), train(few));
  }
}

TEST(ThreeD, GivesTheSameBitsTwice) {
  expect_bit_equal(train(cube("fsdp2", kSequence)), train(cube("fsdp2", kSequence)));
}

TEST(ThreeD, ShardsInReplicasOfATensorSplitEqualOneRank) {
  Training run = cube("fsdp2", kSequence);
  run.axes = {{"pp", 1}, {"dp_replicate", 2}, {"dp_shard", 2}, {"cp", 1}, {"tp", 2}};
  run.make_schedule = nullptr;
  run.microbatches = 3;
  expect_close(train(run), wanted_3d());
}

}  // namespace
}  // namespace heddle::tests
