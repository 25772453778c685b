// The order of fsdp2's collectives, and the memory of whole parameters.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

TEST(Fsdp2, ReducesOnceAStepOrOnceAMicrobatchAsAsked) {
  std::vector<Events> events;
  for (const bool defer : {true, false}) {
    Training run =
        toy("fsdp2", shards(2, 2), std::string("defer_fsdp_grad_sync: ") + (defer ? "true" : "false"));
    run.microbatches = 3;
    run.events = &events;
    gradients(run);
    EXPECT_EQ(count(events[0], "reduce_scatter"), 5 * (defer ? 1 : 3));
    EXPECT_EQ(count(events[0], "all_reduce dp_replicate"), 5);
  }
}

// The embedding and the head are units of their own: 10 rows of 6 over 2 ranks, and a count of gradients
// each.
TEST(Fsdp2, ReducesNoMoreThanOneTableAtATime) {
  std::vector<Events> events;
  Training run = toy("fsdp2", shards(2));
  run.events = &events;
  gradients(run);
  std::vector<std::string> sums;
  for (const std::string& event : events[0])
    if (event.rfind("reduce_scatter", 0) == 0) sums.push_back(event);
  ASSERT_EQ(sums.size(), 5u);
  EXPECT_EQ(sums.front(), "reduce_scatter dp_shard 62");
  EXPECT_EQ(sums.back(), "reduce_scatter dp_shard 62");
}

// What ranks do in one step: collectives and the units' forwards, in order.
Events story(const std::string& more, Toy shape = {}) {
  std::vector<Events> events;
  Training run = toy("fsdp2", shards(2), more);
  run.events = &events;
  run.make_units = [&events, shape](int rank) {
    Toy recorded = shape;
    recorded.events = &events[rank];
    return toy_units(recorded);
  };
  gradients(run);
  Events out;
  for (const std::string& event : events[0]) out.push_back(event.substr(0, event.find(" dp_shard")));
  return out;
}

TEST(Fsdp2, GathersTheNextUnitBeforeThisOneRuns) {
  const std::string gather = "all_gather", reduce = "reduce_scatter";
  EXPECT_EQ(story(""), (Events{gather, gather, "forward embed", gather, "forward layer0", gather,
                               "forward layer1", gather, "forward layer2", "forward head", gather, reduce,
                               gather, reduce, gather, reduce, gather, reduce, reduce}));
}

TEST(Fsdp2, GathersOnceAStepWhenNothingIsResharded) {
  EXPECT_EQ(count(story("reshard_after_forward: false"), "all_gather"), 5);
  EXPECT_EQ(count(story("reshard_after_forward: true"), "all_gather"), 10);
}

TEST(Fsdp2, GathersATiedTableAgainForTheHead) {
  Toy tied;
  tied.tied = true;
  EXPECT_EQ(count(story("", tied), "all_gather"), 5 + 3);
  EXPECT_EQ(count(story("", tied), "reduce_scatter"), 4);
}

// Bytes of whole parameters on each rank after the forward, and after the backward.
void expect_bytes(const std::string& more, const std::vector<bool>& after_forward) {
  ThreadWorld::run(2, [&](Rendezvous& rendezvous) {
    const DeviceMesh mesh = mesh::build(shards(2), rendezvous, "test: world");
    Units units = toy_units({});
    std::vector<ToyUnit*> seen;
    for (size_t i = 0; i < units.size(); ++i) seen.push_back(&toy_at(units, i));
    Plan plan;
    plan.strategy = make_strategy("fsdp2", kFloat + more);
    Stages stages = parallel::build(std::move(units), plan, mesh, {}, 7);
    for (ToyUnit* unit : seen) EXPECT_EQ(unit->bytes(), 0u) << unit->name();
    Batch batch;
    batch.tokens = batch.labels = at::full({2, 3}, 4, at::kLong);
    StageInterfaces(*stages[0]).expect_last_backward();
    const at::Tensor loss = stages[0]->forward({}, batch)[0];
    for (size_t i = 0; i < seen.size(); ++i)
      EXPECT_EQ(seen[i]->bytes() > 0, after_forward[i]) << seen[i]->name();
    loss.backward();
    for (ToyUnit* unit : seen) EXPECT_EQ(unit->bytes(), 0u) << unit->name();
    stages[0]->finish_gradients();
  });
}

TEST(Fsdp2, FreesWholeParametersAfterForwardAndAfterBackward) {
  expect_bytes("", {false, false, false, false, true});
  expect_bytes("reshard_after_forward: true", {false, false, false, false, false});
  expect_bytes("reshard_after_forward: false", {true, true, true, true, true});
}

// When the gradient of layer0's input is there, everything above is gone, frozen parameters among it or not.
TEST(Fsdp2, FreesWhatTheBackwardHasPassed) {
  ThreadWorld::run(2, [&](Rendezvous& rendezvous) {
    const DeviceMesh mesh = mesh::build(shards(2), rendezvous, "test: world");
    Units units = toy_units({});
    toy_at(units, 3).own[1].tensor.set_requires_grad(false);
    std::vector<ToyUnit*> above = {&toy_at(units, 2), &toy_at(units, 3), &toy_at(units, 4)};
    std::vector<size_t> bytes;
    toy_at(units, 1).before = [&](const Tensors& inputs) {
      inputs[0].register_hook([&](const at::Tensor&) {
        for (ToyUnit* unit : above) bytes.push_back(unit->bytes());
      });
    };
    auto stage = make_strategy("fsdp2", kFloat)->parallelize(std::move(units), mesh, {});
    for (const Shard& shard : stage->owned()) parallel::initialise(shard, 7);
    Batch batch;
    batch.tokens = batch.labels = at::full({2, 3}, 4, at::kLong);
    StageInterfaces(*stage).expect_last_backward();
    stage->forward({}, batch)[0].backward();
    stage->finish_gradients();
    EXPECT_EQ(bytes, std::vector<size_t>(3, 0));
  });
}

}  // namespace
}  // namespace heddle::tests
