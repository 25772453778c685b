// In pipelines units stay whole over the microbatches of a step, unless configured otherwise.
#include <gtest/gtest.h>

#include <algorithm>

#include "plugins/pipelines.h"
#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

// Returns the number of gathers per rank: two stages, two shards, 3 microbatches per call, `steps` steps
// without validation.
std::vector<int> gathers(const std::string& section, int steps) {
  std::vector<Events> events;
  Training run = on(single_model(), "fsdp2(" + section + ") dp2 pp2(1f1b) rows2");
  run.steps = steps;
  run.events = &events;
  train(run);
  std::vector<int> out;
  for (const Events& one : events) out.push_back(count(one, "all_gather dp_shard"));
  return out;
}

// AutoModel documents one gather per step. Its code looks for the axis in a mesh that never has it, and
// gathers for every microbatch. Here embedding, five layers and head are split into two stages.
TEST(Fsdp2Pipeline, GathersAUnitOncePerStepForAnyNumberOfMicrobatches) {
  const std::vector<int> one = gathers("", 1), two = gathers("", 2);
  EXPECT_EQ(one[0] + one[2], 7);  // the two stages of one shard
  for (size_t rank = 0; rank < one.size(); ++rank) EXPECT_EQ(two[rank], 2 * one[rank]);
  EXPECT_EQ(gathers("reshard_after_forward: false", 1), one);
  EXPECT_EQ(gathers("enable_fsdp2_prefetch: true", 1), one);
}

TEST(Fsdp2Pipeline, GathersForEveryMicrobatchIfConfigured) {
  const std::vector<int> kept = gathers("", 1), freed = gathers("reshard_after_forward: true", 1);
  // One gather per forward and backward of each microbatch.
  for (size_t rank = 0; rank < kept.size(); ++rank) EXPECT_GE(freed[rank], 3 * kept[rank]);
}

// Returns the events of two ranks of stages by two shards. Each rank has four stages of one unit.
std::vector<Events> events_of_four_stages() {
  std::vector<Events> events;
  Training run = on(toy("single", {}), "fsdp2 dp2 pp2(loopedbfs) rows2");
  run.steps = 1;
  run.pipeline.modules = {{"embed"},  {"layer0"}, {"layer1"}, {"layer2"},
                          {"layer3"}, {"layer4"}, {"layer5"}, {"head"}};
  write_forwards(run, events, {.layers = 6});
  train(run);
  return events;
}

TEST(Fsdp2Pipeline, GathersAStageWhileThePreviousOneRuns) {
  const std::vector<Events> all = events_of_four_stages();
  for (size_t rank = 0; rank < all.size(); ++rank) {
    std::vector<std::string> seen;
    int gathers = 0;
    for (const std::string& event : all[rank]) {
      if (event.starts_with("all_gather dp_shard")) ++gathers;
      if (!event.starts_with("forward ") || std::count(seen.begin(), seen.end(), event) > 0) continue;
      seen.push_back(event);
      // Three of the rank's stages are whole or being gathered: this one and the next two.
      EXPECT_EQ(gathers, std::min<int>(static_cast<int>(seen.size()) + 2, 4))
          << "rank " << rank << " " << event;
    }
    EXPECT_EQ(seen.size(), 4u);
  }
}

// Returns the gathers of a rank before each stage's first forward, for two ranks of two stages with three or
// four units each.
std::vector<std::vector<int>> gathers_before_stages(const std::string& section) {
  std::vector<Events> events;
  Training run = on(toy("single", {}), "fsdp2(" + section + ") dp2 pp2(interleaved1f1b) rows2");
  run.steps = 1;
  const std::vector<std::vector<std::string>> modules = {{"embed", "layer0", "layer1"},
                                                         {"layer2", "layer3", "layer4"},
                                                         {"layer5", "layer6", "layer7"},
                                                         {"layer8", "layer9", "layer10", "head"}};
  run.pipeline.modules = modules;
  write_forwards(run, events, {.layers = 11});
  train(run);
  std::vector<std::vector<int>> out;
  for (const Events& one : events) {
    std::vector<int>& counts = out.emplace_back();
    for (const auto& stage : modules) {
      const auto first = std::find(one.begin(), one.end(), "forward " + stage.front());
      if (first == one.end()) continue;
      counts.push_back(static_cast<int>(std::count_if(one.begin(), first, [](const std::string& event) {
        return event.starts_with("all_gather dp_shard");
      })));
    }
  }
  return out;
}

// On the CPU gathers need memory in addition to the parameters. When the schedule announces a stage, its
// first unit and the next one are gathered, whether units stay whole for the step or are freed after the
// forward.
TEST(Fsdp2Pipeline, PrefetchesTheUnitsOfAStageWithinItsMemory) {
  const std::vector<std::vector<int>> kept = gathers_before_stages("");
  ASSERT_EQ(kept.size(), 4u);
  for (size_t rank = 0; rank < kept.size(); ++rank) {
    const int last = rank < 2 ? 0 : 1;  // the unit of the head
    EXPECT_EQ(kept[rank], (std::vector<int>{4 + last, 5 + last})) << "rank " << rank;
  }
  for (const auto& freed : gathers_before_stages("reshard_after_forward: true")) EXPECT_EQ(freed[0], 4);
}

}  // namespace
}  // namespace heddle::tests
