// The order of fsdp2's collectives, and the memory of whole parameters.
#include <gtest/gtest.h>

#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

TEST(Fsdp2, ReducesOncePerStepOrMicrobatchAsConfigured) {
  for (const bool defer : {true, false}) {
    Training run =
        toy("fsdp2", shards(2, 2), std::string("defer_fsdp_grad_sync: ") + (defer ? "true" : "false"));
    run.microbatches = 3;
    const Events events = events_of(run);
    EXPECT_EQ(count(events, "reduce_scatter"), 5 * (defer ? 1 : 3));
    EXPECT_EQ(count(events, "all_reduce dp_replicate"), 5);
  }
}

// The embedding and the head are separate units: 10 rows of 6 over 2 ranks, and a gradient count each, padded
// to a multiple of 16.
TEST(Fsdp2, ReducesOneTableAtATime) {
  Events sums = events_of(toy("fsdp2", shards(2)));
  std::erase_if(sums, [](const std::string& event) { return !event.starts_with("reduce_scatter"); });
  ASSERT_EQ(sums.size(), 5u);
  EXPECT_EQ(sums.front(), "reduce_scatter dp_shard 64");
  EXPECT_EQ(sums.back(), "reduce_scatter dp_shard 64");
}

TEST(Fsdp2, AlignsReducedPartsTo64Bytes) {
  for (const int ranks : {2, 3, 4}) {
    int sums = 0;
    for (const std::string& event : events_of(toy("fsdp2", shards(ranks)))) {
      if (!event.starts_with("reduce_scatter")) continue;
      EXPECT_EQ(std::stoi(event.substr(event.rfind(' '))) % (16 * ranks), 0) << event;
      ++sums;
    }
    EXPECT_EQ(sums, 5);
  }
}

// Returns the collectives and forwards of the units of one step, in order.
Events story(const std::string& more, const Toy& shape = {}) {
  return story_of(toy("fsdp2", shards(2), more), shape);
}

TEST(Fsdp2, GathersTheNextUnitBeforeThisOneRuns) {
  const std::string gather = "all_gather", reduce = "reduce_scatter";
  EXPECT_EQ(story(""), (Events{gather, gather, "forward embed", gather, "forward layer0", gather,
                               "forward layer1", gather, "forward layer2", "forward head", gather, reduce,
                               gather, reduce, gather, reduce, gather, reduce, reduce}));
}

TEST(Fsdp2, GathersOncePerStepWithoutResharding) {
  EXPECT_EQ(count(story("reshard_after_forward: false"), "all_gather"), 5);
  EXPECT_EQ(count(story("reshard_after_forward: true"), "all_gather"), 10);
}

TEST(Fsdp2, GathersATiedTableAgainForTheHead) {
  Toy tied{.tied = true};
  EXPECT_EQ(count(story("", tied), "all_gather"), 5 + 3);
  EXPECT_EQ(count(story("", tied), "reduce_scatter"), 4);
}

// A gather of several parameters uses a buffer in addition to the parameters.
TEST(Fsdp2, AnnouncesAtMostTheGathersThatItsForwardHasInFlight) {
  on_toy_ranks(toy("fsdp2", shards(2), "reshard_after_forward: false"), [](const ToyRank& rank) {
    rank.events.clear();
    rank.stages[0]->unshard();
    EXPECT_EQ(count(rank.events, "all_gather"), 3);  // embed, layer0, and the head with one parameter
    rank.stages[0]->forward({}, toy_batch());
    EXPECT_EQ(count(rank.events, "all_gather"), 5);
    rank.stages[0]->reshard();
  });
}

// Checks the bytes of whole parameters on each rank after the forward, and after the backward.
void expect_bytes(const std::string& more, const std::vector<bool>& after_forward) {
  on_toy_ranks(toy("fsdp2", shards(2), more), [&](const ToyRank& rank) {
    for (ToyUnit* unit : rank.units) EXPECT_EQ(unit->bytes(), 0u) << unit->name();
    rank.stages[0]->expect_last_backward();
    const at::Tensor loss = rank.stages[0]->forward({}, toy_batch())[0];
    for (size_t i = 0; i < rank.units.size(); ++i)
      EXPECT_EQ(rank.units[i]->bytes() > 0, after_forward[i]) << rank.units[i]->name();
    loss.backward();
    for (ToyUnit* unit : rank.units) EXPECT_EQ(unit->bytes(), 0u) << unit->name();
    rank.stages[0]->finish_gradients();
  });
}

TEST(Fsdp2, FreesWholeParametersAfterForwardAndAfterBackward) {
  expect_bytes("", {false, false, false, false, true});
  expect_bytes("reshard_after_forward: true", {false, false, false, false, false});
  expect_bytes("reshard_after_forward: false", {true, true, true, true, true});
}

// When the gradient of layer0's input arrives, all later units are freed, with or without frozen parameters.
TEST(Fsdp2, FreesUnitsThatTheBackwardHasPassed) {
  Training run = toy("fsdp2", shards(2));
  run.frozen = {"layer2.bias"};
  on_toy_ranks(run, [](const ToyRank& rank) {
    std::vector<size_t> bytes;
    rank.units[1]->before = [&](const Tensors& inputs) {
      inputs[0].register_hook([&](const at::Tensor&) {
        for (size_t above : {2, 3, 4}) bytes.push_back(rank.units[above]->bytes());
      });
    };
    toy_step(rank.stages);
    EXPECT_EQ(bytes, std::vector<size_t>(3, 0));
  });
}

}  // namespace
}  // namespace heddle::tests
