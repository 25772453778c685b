// Data parallelism inside the stages of a pipeline: every strategy with every way to run the schedule.
#include <gtest/gtest.h>

#include "plugins/pipelines.h"

namespace heddle::tests {
namespace {

constexpr const char* kFp32 = "mp_policy: {param_dtype: float32, reduce_dtype: float32}";

Training with(Training run, const std::string& strategy, const std::string& section, std::vector<Axis> axes) {
  run.strategy = strategy;
  run.section = section;
  run.axes = std::move(axes);
  return run;
}

TEST(Composition, DdpInsideStagesEqualsSingle) {
  for (const char* schedule : {"gpipe", "1f1b"})
    for (const char* section : {"{}", "bucket_cap_mb: 0.001", "gradient_as_bucket_view: true"})
      for (const int calls : {1, 2}) {
        SCOPED_TRACE(std::string(schedule) + ", " + section + ", " + std::to_string(calls) + " calls");
        expect_close(train(with(pipeline(schedule, 2, 1, calls), "ddp", section, {{"pp", 2}, {"dp", 2}})),
                     alone());
      }
}

TEST(Composition, ShardsInsideStagesEqualSingle) {
  for (const char* schedule : {"gpipe", "1f1b"})
    for (const char* more : {"", ", reshard_after_forward: true", ", defer_fsdp_grad_sync: false"})
      for (const int calls : {1, 2}) {
        SCOPED_TRACE(std::string(schedule) + more + ", " + std::to_string(calls) + " calls");
        expect_close(train(with(pipeline(schedule, 2, 1, calls), "fsdp2",
                                "{" + std::string(kFp32) + more + "}", {{"pp", 2}, {"dp_shard", 2}})),
                     alone());
      }
}

TEST(Composition, HybridShardsInsideStagesEqualSingle) {
  expect_close(
      train(with(pipeline("1f1b", 2, 1), "fsdp2", kFp32, {{"pp", 2}, {"dp_replicate", 2}, {"dp_shard", 2}})),
      alone());
}

TEST(Composition, SeveralStagesOfARankShareADataParallelGroup) {
  for (const char* strategy : {"ddp", "fsdp2"})
    for (const Placement placement : {Placement::loop, Placement::v}) {
      SCOPED_TRACE(strategy);
      const bool shards = std::string(strategy) == "fsdp2";
      Training run = with(pipeline("", 2, 2), strategy, shards ? kFp32 : "{}",
                          {{"pp", 2}, {shards ? "dp_shard" : "dp", 2}});
      run.make_schedule = made<BreadthFirst>(2, placement);
      expect_close(train(run), alone());
    }
}

TEST(Composition, LateWeightGradientsReachEveryStrategy) {
  for (const char* strategy : {"ddp", "fsdp2"})
    for (const int calls : {1, 2}) {
      SCOPED_TRACE(strategy);
      const bool shards = std::string(strategy) == "fsdp2";
      Training run = with(pipeline("", 2, 1, calls), strategy, shards ? kFp32 : "{}",
                          {{"pp", 2}, {shards ? "dp_shard" : "dp", 2}});
      run.make_schedule = made<LateWeights>(1);
      expect_close(train(run), alone());
    }
}

}  // namespace
}  // namespace heddle::tests
