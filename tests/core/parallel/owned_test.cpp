// Checks of the shards that a strategy owns, before the first step: every parameter once, in boxes.
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <mutex>

#include "heddle/mesh/dry.h"
#include "heddle/parallel/build.h"
#include "heddle/parallel/stages.h"
#include "heddle/transport/threads.h"
#include "lib/testing/small_model.h"
#include "tests/thrown.h"

namespace heddle::tests {

using namespace kits;
namespace {

using Shards = std::vector<Shard>;
using Change = std::function<void(Shards&, const DeviceMesh&)>;

// Owns every parameter by rows over `dp_shard`, after the changes of `change`.
class OwnsRows : public ParallelStage {
 public:
  OwnsRows(Units units, const DeviceMesh& mesh, const Change& change) : units_(std::move(units)) {
    std::map<std::string, bool> seen;
    const int64_t ranks = mesh.size("dp_shard"), rank = mesh.rank("dp_shard");
    for (const auto& unit : units_)
      for (ParameterSlot& slot : unit->parameters()) {
        if (std::exchange(seen[slot.name], true)) continue;
        Shard shard = whole_shard(slot, {});
        const int64_t rows = shard.shape[0], begin = rows * rank / ranks, end = rows * (rank + 1) / ranks;
        std::vector<int64_t> size = shard.shape;
        size[0] = end - begin;
        shard.offset[0] = begin;
        shard.axes = {"dp_shard"};
        shard.tensor = at::empty(size).set_requires_grad(true);
        owned_.push_back(shard);
      }
    change(owned_, mesh);
  }
  Tensors forward(Tensors inputs, const Batch&) override { return inputs; }
  void finish_gradients() override {}
  std::span<Shard> owned() override { return owned_; }
  void parameters_changed(ParametersChange) override {}

 private:
  Units units_;
  Shards owned_;
};

class Strategy : public IStrategy {
 public:
  explicit Strategy(Change change) : change_(std::move(change)) {}
  Needs needs() const override { return {}; }
  std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh& mesh,
                                             std::span<const Placed>) override {
    return std::make_unique<OwnsRows>(std::move(units), mesh, change_);
  }

 private:
  Change change_;
};

Units tied_model() {
  kits::Shape shape;
  shape.tied = true;
  return kits::small_model(shape);
}

Stages build_with(const Change& change, Rendezvous& rendezvous, int replicas, int shards) {
  Plan plan;
  plan.strategy = std::make_unique<Strategy>(change);
  plan.strategy_name = "rows";
  plan.strategy_file = "libheddle_rows.so";
  const std::vector<Axis> axes = {{"dp_replicate", replicas}, {"dp_shard", shards}};
  return parallel::build(tied_model(), plan, mesh::build(axes, rendezvous, ""), {}, 42);
}

// Returns the error of every rank. Fails if errors differ.
std::string building(const Change& change, int replicas = 2, int shards = 3) {
  std::mutex one_at_a_time;
  std::vector<std::string> told;
  ThreadWorld::run(replicas * shards, [&](Rendezvous& rendezvous) {
    std::string text = thrown_by([&] { build_with(change, rendezvous, replicas, shards); });
    const std::lock_guard lock(one_at_a_time);
    told.push_back(std::move(text));
  });
  EXPECT_THAT(told, ::testing::Each(told.front()));
  return told.front();
}

const std::string kBreaks =
    "error[plugin_failed] libheddle_rows.so: the strategy 'rows' breaks a rule of ParallelStage::owned(): ";
const std::string kOnce =
    "\n  hint: each copy holds every element once: own a tied parameter (one name in several slots) once, "
    "and "
    "name in Shard::axes the mesh axes that split it, and no others";
const std::string kBoxes =
    "\n  hint: a shard is a box of the whole parameter: begin with whole_shard(slot, placed), and call "
    "shard.tensor.set_requires_grad(true) where the slot is trainable()";

TEST(OwnedShards, AreAcceptedWhenEachCopyHoldsEveryElementOnce) {
  const Change none = [](Shards&, const DeviceMesh&) {};
  for (const auto& [replicas, shards] : {std::pair(1, 1), std::pair(1, 3), std::pair(2, 1), std::pair(2, 3)})
    EXPECT_EQ(building(none, replicas, shards), "") << replicas << " " << shards;
  EXPECT_EQ(building([](Shards& owned, const DeviceMesh&) { std::reverse(owned.begin(), owned.end()); }), "");
}

TEST(OwnedShards, CanBeOwnedWholeByOneRank) {
  const Change change = [](Shards& owned, const DeviceMesh& mesh) {
    for (Shard& shard : owned) {
      std::vector<int64_t> size = shard.shape;
      if (mesh.rank("dp_shard") != 1) size[0] = 0;
      shard.offset[0] = 0;
      shard.tensor = at::empty(size).set_requires_grad(true);
    }
  };
  EXPECT_EQ(building(change), "");
}

// The small model has a tied parameter, layer.0.weight with 7 * 7 elements.
TEST(OwnedShards, MustNotBeOwnedTwice) {
  EXPECT_EQ(building([](Shards& owned, const DeviceMesh&) { owned.push_back(owned[1]); }),
            kBreaks +
                "the shards of 'layer.0.weight' hold 98 elements in a copy, and the parameter has 49: some "
                "are owned more than once" +
                kOnce);
}

TEST(OwnedShards, MustNotBeMissingOnOneRank) {
  const Change change = [](Shards& owned, const DeviceMesh& mesh) {
    if (mesh.rank("world") == 4) owned.erase(owned.begin() + 1);
  };
  EXPECT_EQ(building(change),
            kBreaks +
                "the shards of 'layer.0.weight' hold 42 elements in a copy, and the parameter has 49: some "
                "are owned by no rank" +
                kOnce);
}

// The second of three ranks holds the rows of the first.
TEST(OwnedShards, MustNotLeaveGaps) {
  const Change change = [](Shards& owned, const DeviceMesh& mesh) {
    if (mesh.rank("dp_shard") == 1) owned[1].offset[0] = 0;
  };
  EXPECT_EQ(building(change),
            kBreaks +
                "the shards of 'layer.0.weight' hold 49 elements in a copy, and the parameter has 49: some "
                "are owned more than once, and some by no rank" +
                kOnce);
}

// Elements that one replica holds twice do not replace elements that another replica lacks.
TEST(OwnedShards, MustBeCompleteInEachCopy) {
  const Change change = [](Shards& owned, const DeviceMesh& mesh) {
    if (mesh.rank("dp_replicate") == 0)
      owned.push_back(owned[1]);
    else
      owned.erase(owned.begin() + 1);
  };
  EXPECT_EQ(building(change),
            kBreaks +
                "the shards of 'layer.0.weight' hold 49 elements in a copy, and the parameter has 49: some "
                "are owned more than once, and some by no rank" +
                kOnce);
}

TEST(OwnedShards, MustNameTheAxesThatSplitThem) {
  EXPECT_EQ(building([](Shards& owned, const DeviceMesh&) { owned[1].axes.clear(); }),
            kBreaks +
                "the shards of 'layer.0.weight' hold 16.3333333333333 elements in a copy, and the parameter "
                "has 49: some are owned by no rank" +
                kOnce);
  const Change change = [](Shards& owned, const DeviceMesh&) {
    owned[1].axes = {"dp_shard", "dp_replicate"};
  };
  EXPECT_EQ(building(change),
            kBreaks +
                "the shards of 'layer.0.weight' hold 98 elements in a copy, and the parameter has 49: some "
                "are owned more than once" +
                kOnce);
}

// All ranks report a fault of one rank.
TEST(OwnedShards, MustBeBoxesOfTheirParameters) {
  const auto on_rank_3 = [](const std::function<void(Shard&)>& change) {
    return building([change](Shards& owned, const DeviceMesh& mesh) {
      if (mesh.rank("world") == 3) change(owned[1]);
    });
  };
  const std::string owns = kBreaks + "on rank 3 it owns a shard of 'layer.0.weight'";
  EXPECT_EQ(on_rank_3([](Shard& shard) {
              shard.tensor = at::empty({2, 7});
            }),
            owns + " that requires no gradient, so the optimizer would leave it as it is" + kBoxes);
  EXPECT_EQ(on_rank_3([](Shard& shard) { shard.tensor = at::Tensor(); }),
            owns + " without a tensor" + kBoxes);
  EXPECT_EQ(on_rank_3([](Shard& shard) {
              shard.shape = {7, 2};
            }),
            owns + " of shape [7, 2], and the parameter has [7, 7]" + kBoxes);
  EXPECT_EQ(on_rank_3([](Shard& shard) {
              shard.offset = {6, 0};
            }),
            owns + " with a tensor of [2, 7] at the offset [6, 0], which is not a box in its shape [7, 7]" +
                kBoxes);
  EXPECT_EQ(
      on_rank_3([](Shard& shard) { shard.offset = {0}; }),
      owns + " with a tensor of [2, 7] at the offset [0], which is not a box in its shape [7, 7]" + kBoxes);
  EXPECT_EQ(on_rank_3([](Shard& shard) { shard.name = "other"; }),
            kBreaks + "on rank 3 it owns a shard of 'other', and the model has no such parameter" + kBoxes);
  EXPECT_THAT(on_rank_3([](Shard& shard) { shard.axes = {"dp_shards"}; }),
              ::testing::StartsWith(owns + ", and of its axes: "));
}

// Without the interface, the shards are not checked.
TEST(HeldWhole, IsRefusedIfItReturnsParts) {
  const auto holding = [](int shards) {
    std::string told;
    ThreadWorld::run(shards, [&](Rendezvous& rendezvous) {
      Stages stages = build_with([](Shards&, const DeviceMesh&) {}, rendezvous, 1, shards);
      std::string text = thrown_by([&] { const Unsharded whole(stages); });
      if (rendezvous.rank() == 0) told = std::move(text);
    });
    return told;
  };
  EXPECT_EQ(holding(1), "");
  EXPECT_EQ(holding(2),
            "error[plugin_failed] libheddle_rows.so: the strategy 'rows' breaks a rule of "
            "ParallelStage::hold_whole(): it gives a part [6, 7] of 'first.weight', which is [13, 7]\n"
            "  hint: override hold_whole() and gather there what the data-parallel ranks hold; its default "
            "returns the owned shards");
}

// A rank of a dry world is alone, and does not know what other ranks own.
TEST(OwnedShards, AreNotCheckedInADryWorld) {
  DryRendezvous rendezvous(1, 6);
  build_with([](Shards&, const DeviceMesh&) {}, rendezvous, 2, 3);
}

}  // namespace
}  // namespace heddle::tests
