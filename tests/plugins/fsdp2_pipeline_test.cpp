// The rule for pipelines: units stay whole over the microbatches of a step, unless asked otherwise.
#include <gtest/gtest.h>

#include "plugins/pipelines.h"
#include "plugins/toy_training.h"

namespace heddle::testing {
namespace {

// Two stages by two shards, 3 microbatches a call, `calls` calls a step.
Training staged(const std::string& section, int calls = 1) {
  Training run = pipeline("1f1b", 2, 2, calls);
  run.strategy = "fsdp2";
  run.section = kFloat + section;
  run.axes = {{"pp", 2}, {"dp_replicate", 1}, {"dp_shard", 2}, {"cp", 1}, {"tp", 1}};
  return run;
}

// Gathers of each rank in a number of steps without validation.
std::vector<int> gathers(const std::string& section, int steps) {
  std::vector<Events> events;
  Training run = staged(section);
  run.steps = steps;
  run.events = &events;
  train(run);
  std::vector<int> out;
  for (const Events& one : events) out.push_back(count(one, "all_gather dp_shard"));
  return out;
}

// AutoModel's documents say so; its code looks for the axis in a mesh that never has it, and gathers for
// every microbatch. Here: embedding, five layers and head are cut into two stages.
TEST(Fsdp2Pipeline, GathersAUnitOnceAStepHoweverManyMicrobatches) {
  const std::vector<int> one = gathers("", 1), two = gathers("", 2);
  EXPECT_EQ(one[0] + one[2], 7);  // the two stages of one shard
  for (size_t rank = 0; rank < one.size(); ++rank) EXPECT_EQ(two[rank], 2 * one[rank]);
  EXPECT_EQ(gathers("reshard_after_forward: false", 1), one);
  EXPECT_EQ(gathers("enable_fsdp2_prefetch: true", 1), one);
}

TEST(Fsdp2Pipeline, GathersForEveryMicrobatchWhereAsked) {
  const std::vector<int> kept = gathers("", 1), freed = gathers("reshard_after_forward: true", 1);
  // Every forward and every backward of each microbatch.
  for (size_t rank = 0; rank < kept.size(); ++rank) EXPECT_GE(freed[rank], 3 * kept[rank]);
}

TEST(Fsdp2Pipeline, EqualsOneRankWhateverIsKept) {
  for (const char* section : {"", "reshard_after_forward: true", "reshard_after_forward: false",
                              "enable_fsdp2_prefetch: true\nfsdp2_forward_prefetch_depth: 3",
                              "multimodal: {frozen_sharding: replicate}", "offload_policy: {}"})
    for (const int calls : {1, 3}) {
      SCOPED_TRACE(std::string(section) + ", calls " + std::to_string(calls));
      expect_close(train(staged(section, calls)), alone());
    }
}

}  // namespace
}  // namespace heddle::testing
