// The search of layouts: order of candidates, and splits of a pipeline over machines of two speeds.
#include "lib/run/plan/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "lib/run/plan/candidates.h"

namespace heddle {
namespace {

Layout layout_of(int tp, int64_t rows) {
  Layout out{"fsdp2"};
  out.tp = tp;
  out.rows = rows;
  return out;
}

TEST(Candidates, TakeTheFastestEstimateThatIsLikelyToFit) {
  Candidates candidates(/*memory=*/100);
  candidates.add(layout_of(1, 1), /*seconds=*/3, /*memory=*/50);
  candidates.add(layout_of(1, 4), 1, 1000);
  candidates.add(layout_of(1, 2), 2, 90);
  EXPECT_EQ(candidates.take(1, 1e300)->layout.rows, 2);
  EXPECT_EQ(candidates.take(1, 1e300)->layout.rows, 1);
  EXPECT_EQ(candidates.take(1, 1e300)->layout.rows, 4);
  EXPECT_FALSE(candidates.take(1, 1e300));
}

TEST(Candidates, LearnMoreFromSimilarDrySteps) {
  Candidates candidates(/*memory=*/0);
  candidates.add(layout_of(1, 2), 2, 1);
  candidates.add(layout_of(8, 2), 2.1, 1);
  candidates.learn({layout_of(1, 1), 2, 1}, /*seconds=*/4, 1);
  candidates.learn({layout_of(8, 1), 2, 1}, /*seconds=*/2, 1);
  EXPECT_EQ(candidates.take(1, 1e300)->layout.tp, 8);
}

TEST(Candidates, ComeLateIfSimilarLayoutsAreRefusedOrTooLarge) {
  Candidates refused(0), large(10);
  for (Candidates* each : {&refused, &large}) {
    each->add(layout_of(1, 2), 1, 8);
    each->add(layout_of(8, 2), 2, 8);
  }
  refused.learn_refusal({layout_of(1, 1), 1, 8});
  refused.learn({layout_of(8, 1), 2, 8}, 2, 8);
  EXPECT_EQ(refused.take(1, 1e300)->layout.tp, 8);
  large.learn({layout_of(1, 1), 1, 8}, 1, 20);
  large.learn({layout_of(8, 1), 2, 8}, 2, 8);
  EXPECT_EQ(large.take(1, 1e300)->layout.tp, 8);
}

TEST(Candidates, EndIfNoneIsExpectedToBeFastEnough) {
  Candidates candidates(0);
  candidates.add(layout_of(1, 1), 5, 1);
  EXPECT_FALSE(candidates.take(1, /*most=*/1));
  EXPECT_TRUE(candidates.take(1, /*most=*/6));
}

MachinePart machine_part(double speed) {
  MachineFile machine;
  machine.name = machine.device = speed > 1 ? "fast" : "slow";
  machine.memory = 80e9;
  machine.memory_bandwidth = speed * 1e12;
  machine.peak_16 = speed * 300e12;
  machine.peak_32 = speed * 20e12;
  machine.node_bandwidth = 200e9;
  machine.network_bandwidth = 25e9;
  return {machine, 2};
}

// Returns all lists of `stages` positive numbers with this sum.
std::vector<std::vector<int64_t>> splits(int64_t layers, int64_t stages) {
  if (stages == 1) return {{layers}};
  std::vector<std::vector<int64_t>> out;
  for (int64_t first = 1; first <= layers - stages + 1; ++first)
    for (std::vector<int64_t>& rest : splits(layers - first, stages - 1)) {
      rest.insert(rest.begin(), first);
      out.push_back(std::move(rest));
    }
  return out;
}

constexpr const char* kDense =
    "model: {_target_: from_config, dtype: bfloat16, config: {model_type: llama, vocab_size: 8192, "
    "hidden_size: 2048, intermediate_size: 8192, num_hidden_layers: 10, num_attention_heads: 16, "
    "max_position_embeddings: 2048}}\n"
    "dataset: {_target_: MockIterableDataset, seq_len: 2048, num_samples: 1000, vocab_size: 8192}\n"
    "step_scheduler: {global_batch_size: 32, max_steps: 2}\n";

// The search records three microbatches of a pipeline, and details_of() eight. Each microbatch takes the time
// of the shortest, but only the first backward does not add to earlier gradients.
TEST(LayoutSearch, PredictsTheMemoryAndTimeOfAPipelineFromFewMicrobatches) {
  PluginRegistry plugins({HEDDLE_BINARY_DIR "/plugins"});
  PlanRequest request;
  request.recipe = config::read_text(kDense, "run.yaml");
  request.world = 8;
  request.machines = {{machine_part(1).machine}};
  request.fixed = {{"pp_size", "4"}, {"virtual_stages", "1"}, {"tp_size", "1"}, {"local_batch_size", "1"}};
  const FoundLayouts found = search_layouts(request, plugins);
  ASSERT_GE(found.fitting.size(), 9U);  // three strategies, three kinds of recomputation
  for (const PlannedLayout& one : found.fitting) {
    const StepCost whole = details_of(request, plugins, one.layout).cost;
    EXPECT_NEAR(one.cost.peak / whole.peak, 1, 0.01) << one.layout.text();
    EXPECT_NEAR(one.cost.time.seconds / whole.time.seconds, 1, 0.02) << one.layout.text();
  }
}

// Four ranks on machines of two speeds: all 84 splits of ten layers over four stages.
TEST(LayoutSearch, SplitsLayersBySpeedNearlyAsWellAsTheBestSplit) {
  PluginRegistry plugins({HEDDLE_BINARY_DIR "/plugins"});
  PlanRequest request;
  request.recipe = config::read_text(std::string(kDense) + "distributed: {strategy: ddp}\n", "run.yaml");
  request.world = 4;
  request.machines = {machine_part(2), machine_part(1)};
  request.fixed = {{"pp_size", "4"}, {"local_batch_size", "1"}, {"activation_checkpointing", "none"}};
  const FoundLayouts found = search_layouts(request, plugins);
  ASSERT_EQ(found.fitting.size(), 1U);
  double best = std::numeric_limits<double>::infinity(), worst = 0;
  std::vector<int64_t> fastest;
  for (const std::vector<int64_t>& split : splits(10, 4)) {
    Layout other = found.fitting.front().layout;
    other.stage_layers = split;
    const double seconds = details_of(request, plugins, other).cost.time.seconds;
    if (seconds < best) best = seconds, fastest = split;
    worst = std::max(worst, seconds);
  }
  EXPECT_LE(found.fitting.front().cost.time.seconds, 1.05 * best) << ::testing::PrintToString(fastest);
  EXPECT_GT(worst, 2 * best);
}

}  // namespace
}  // namespace heddle
