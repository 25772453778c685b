// Units that are whole or being gathered at each moment, and the order of gathers.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sum.h>
#include <gtest/gtest.h>

#include "plugins/fsdp2/layout.h"
#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

using fsdp2::Ahead;

constexpr int kToyUnits = 4;

// Units "0" to "3" with one parameter of 2, 4, 6 and 8 elements each, so the size of a gather identifies its
// unit.
Units numbered_units() {
  Units units;
  for (int i = 0; i < kToyUnits; ++i) {
    std::vector<ToyUnit::Parameter> parameters = {
        {"w" + std::to_string(i), at::full({2 * (i + 1)}, 0.5).set_requires_grad(true), {}}};
    const auto body = [](ToyUnit& unit, Tensors x, const Batch&) {
      const at::Tensor y = x[0] * unit.own[0].tensor.sum();
      y.register_hook([&unit](const at::Tensor&) {
        if (unit.events != nullptr) unit.events->push_back("backward " + std::string(unit.name()));
      });
      return Tensors{y * 1.0};
    };
    units.push_back(std::make_unique<ToyUnit>(std::to_string(i), std::move(parameters), body));
  }
  return units;
}

// Runs a forward and a backward on two ranks.
void step_of(const std::string& section, bool recorded, const std::function<void(const ToyRank&)>& before,
             const std::function<void(const ToyRank&)>& after) {
  Training run = toy("fsdp2", shards(2), section);
  run.make_units = [](int) { return numbered_units(); };
  on_toy_ranks(run, [&](const ToyRank& rank) {
    rank.events.clear();  // initial values
    for (ToyUnit* unit : rank.units) unit->events = recorded ? &rank.events : nullptr;
    before(rank);
    ParallelStage& stage = *rank.stages[0];
    stage.expect_last_backward();
    stage.forward({at::full({3}, 1.0)}, Batch())[0].sum().backward();
    stage.finish_gradients();
    if (rank.mesh.rank("world") == 0) after(rank);
  });
}

// Returns the events of one forward and backward on rank 0: "gather 1", "forward 0", "backward 3", and so on.
Events prefetch_story(const std::string& section) {
  Events all;
  step_of(
      section, true, [](const ToyRank&) {}, [&](const ToyRank& rank) { all = rank.events; });
  Events out;
  for (const std::string& event : all) {
    if (event.rfind("reduce_scatter", 0) == 0) continue;
    const bool gather = event.rfind("all_gather", 0) == 0;
    const int elements = gather ? std::stoi(event.substr(event.rfind(' '))) : 0;
    out.push_back(gather ? "gather " + std::to_string(elements / 2 - 1) : event);
  }
  return out;
}

std::string depths(int forward, int backward) {
  return "enable_fsdp2_prefetch: true\nfsdp2_forward_prefetch_depth: " + std::to_string(forward) +
         "\nfsdp2_backward_prefetch_depth: " + std::to_string(backward) + "\n";
}

TEST(Fsdp2Prefetch, UsesTheDefaultDepths) {
  EXPECT_EQ(prefetch_story("reshard_after_forward: true\nenable_fsdp2_prefetch: true"),
            (Events{"gather 0", "gather 1", "forward 0", "gather 2", "forward 1", "gather 3", "forward 2",
                    "forward 3",  //
                    "gather 3", "gather 2", "gather 1", "backward 3", "gather 0", "backward 2", "backward 1",
                    "backward 0"}));
}

TEST(Fsdp2Prefetch, PrefetchesToTheConfiguredDepths) {
  EXPECT_EQ(prefetch_story("reshard_after_forward: true\n" + depths(2, 3)),
            (Events{"gather 0", "gather 1", "gather 2", "forward 0", "gather 3", "forward 1", "forward 2",
                    "forward 3",  //
                    "gather 3", "gather 2", "gather 1", "gather 0", "backward 3", "backward 2", "backward 1",
                    "backward 0"}));
}

TEST(Fsdp2Prefetch, PrefetchesNothingAtDepthZero) {
  EXPECT_EQ(prefetch_story("reshard_after_forward: true\n" + depths(0, 0)),
            (Events{"gather 0", "forward 0", "gather 1", "forward 1", "gather 2", "forward 2", "gather 3",
                    "forward 3",  //
                    "gather 3", "backward 3", "gather 2", "backward 2", "gather 1", "backward 1", "gather 0",
                    "backward 0"}));
}

TEST(Fsdp2Prefetch, PrefetchesOneUnitWhenDisabled) {
  const Events implicit = {"gather 0",   "gather 1", "forward 0",  "gather 2",
                           "forward 1",  "gather 3", "forward 2",  "forward 3",  //
                           "gather 3",   "gather 2", "backward 3", "gather 1",
                           "backward 2", "gather 0", "backward 1", "backward 0"};
  EXPECT_EQ(prefetch_story("reshard_after_forward: true"), implicit);
  EXPECT_EQ(prefetch_story("reshard_after_forward: true\nfsdp2_forward_prefetch_depth: 3"), implicit);
}

// The last unit stays whole, so its backward only gathers units ahead of it.
TEST(Fsdp2Prefetch, CountsTheDepthFromAUnitThatStayedWhole) {
  EXPECT_EQ(
      prefetch_story(depths(1, 1)),
      (Events{"gather 0", "gather 1", "forward 0", "gather 2", "forward 1", "gather 3", "forward 2",
              "forward 3",  //
              "gather 2", "backward 3", "gather 1", "backward 2", "gather 0", "backward 1", "backward 0"}));
}

TEST(Fsdp2Prefetch, IsOneUnitIfUnitsStayWholeAndInAPipeline) {
  EXPECT_EQ(fsdp2::ahead(Ahead{3, 2}, std::nullopt, 1), (Ahead{3, 2}));
  EXPECT_EQ(fsdp2::ahead(Ahead{3, 2}, true, 1), (Ahead{3, 2}));
  EXPECT_EQ(fsdp2::ahead(Ahead{3, 2}, false, 1), (Ahead{1, 1}));
  EXPECT_EQ(fsdp2::ahead(Ahead{3, 2}, std::nullopt, 2), (Ahead{1, 1}));
  EXPECT_EQ(fsdp2::ahead(Ahead{3, 2}, true, 2), (Ahead{1, 1}));
  EXPECT_EQ(fsdp2::ahead(std::nullopt, true, 1), (Ahead{1, 1}));
  EXPECT_EQ(prefetch_story("reshard_after_forward: false\n" + depths(0, 0)),
            (Events{"gather 0", "gather 1", "forward 0", "gather 2", "forward 1", "gather 3", "forward 2",
                    "forward 3", "backward 3", "backward 2", "backward 1", "backward 0"}));
}

// Returns the units whose storage is allocated: when each runs forward, and when the gradient of its input
// arrives.
std::vector<std::string> units_there(const std::string& section) {
  std::vector<std::string> mine[2];
  const auto look = [&](const ToyRank& rank) {
    std::string there;
    for (ToyUnit* unit : rank.units)
      if (unit->bytes() > 0) there += unit->name();
    mine[rank.mesh.rank("world")].push_back(there);
  };
  const auto look_at_each = [&](const ToyRank& rank) {
    for (ToyUnit* unit : rank.units)
      unit->before = [&](const Tensors& inputs) {
        look(rank);
        if (inputs[0].requires_grad()) inputs[0].register_hook([&](const at::Tensor&) { look(rank); });
      };
  };
  step_of(section, false, look_at_each, [](const ToyRank&) {});
  return mine[0];
}

// At that time unit i - 1 is whole, the units ahead of it are whole or being gathered, and later units are
// freed.
TEST(Fsdp2Prefetch, HoldsAtMostTheUnitsThatTheDepthsAllow) {
  using Seen = std::vector<std::string>;
  EXPECT_EQ(units_there("reshard_after_forward: true\n" + depths(1, 2)),
            (Seen{"01", "12", "23", "3", "012", "01", "0"}));
  EXPECT_EQ(units_there("reshard_after_forward: true\n" + depths(2, 1)),
            (Seen{"012", "123", "23", "3", "12", "01", "0"}));
  EXPECT_EQ(units_there("reshard_after_forward: true\n" + depths(0, 0)),
            (Seen{"0", "1", "2", "3", "2", "1", "0"}));
  EXPECT_EQ(units_there("reshard_after_forward: false"),
            (Seen{"01", "012", "0123", "0123", "012", "01", "0"}));
}

TEST(Fsdp2Prefetch, WarnsOnceOfIgnoredDepths) {
  const std::vector<std::string> want = {
      "the prefetch depths have no effect because enable_fsdp2_prefetch is false: one unit is prefetched"};
  EXPECT_EQ(train(toy("fsdp2", shards(2), kFloat + "fsdp2_forward_prefetch_depth: 3")).warnings, want);
  EXPECT_TRUE(train(toy("fsdp2", shards(2), depths(3, 2))).warnings.empty());
}

}  // namespace
}  // namespace heddle::tests
