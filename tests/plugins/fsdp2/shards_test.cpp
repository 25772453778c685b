// Split of rows in fsdp2, reshard policies, and gradients that are equal however they are split.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <mutex>

#include "plugins/fsdp2/layout.h"
#include "plugins/toy_training.h"

namespace heddle::tests {
namespace {

using fsdp2::Rows;
using sharding::Reshard;

TEST(Fsdp2Rows, AreChunksOfWhichTheLastMayBeEmpty) {
  EXPECT_EQ(fsdp2::rows_of(10, 4, 0), (Rows{0, 3}));
  EXPECT_EQ(fsdp2::rows_of(10, 4, 3), (Rows{9, 1}));
  EXPECT_EQ(fsdp2::rows_of(5, 4, 2), (Rows{4, 1}));
  EXPECT_EQ(fsdp2::rows_of(5, 4, 3), (Rows{5, 0}));
  EXPECT_EQ(fsdp2::rows_of(1, 4, 1), (Rows{1, 0}));
  EXPECT_EQ(fsdp2::rows_of(0, 4, 0), (Rows{0, 0}));
}

TEST(Fsdp2Reshard, FreesEveryUnitButTheLastByDefault) {
  EXPECT_EQ(fsdp2::reshards(3, std::nullopt, 1),
            (std::vector<Reshard>{Reshard::after_forward, Reshard::after_forward, Reshard::after_backward}));
  EXPECT_EQ(fsdp2::reshards(1, std::nullopt, 1), std::vector<Reshard>{Reshard::after_backward});
  EXPECT_TRUE(fsdp2::reshards(0, std::nullopt, 1).empty());
  EXPECT_EQ(fsdp2::reshards(2, true, 1), std::vector<Reshard>(2, Reshard::after_forward));
  EXPECT_EQ(fsdp2::reshards(2, false, 1), std::vector<Reshard>(2, Reshard::after_last_backward));
  EXPECT_EQ(fsdp2::reshards(2, std::nullopt, 4), std::vector<Reshard>(2, Reshard::after_last_backward));
  EXPECT_EQ(fsdp2::reshards(2, true, 4), std::vector<Reshard>(2, Reshard::after_forward));
}

// Ten rows and one row: over twelve ranks most parts are empty, and the last ranks own nothing.
TEST(Fsdp2, TrainsTenRowsAndOneRowOverUpToTwelveRanks) {
  const Outcome want = train(toy("single", {}));
  for (const int ranks : {2, 3, 4, 6, 12}) expect_close(train(toy("fsdp2", shards(ranks))), want);
}

TEST(Fsdp2, OwnsEveryRowOnceAndRecordsItsAxis) {
  std::mutex lock;
  std::map<std::string, int64_t> rows;
  Events boxes;
  ThreadWorld::run(4, [&](Rendezvous& rendezvous) {
    const DeviceMesh mesh = mesh::build(shards(4), rendezvous, "test: world");
    auto stage = make_strategy("fsdp2", kFloat)->parallelize(toy_units({}), mesh, {});
    const std::lock_guard held(lock);
    for (const Shard& shard : stage->owned()) {
      rows[shard.name] += shard.tensor.size(0);
      EXPECT_EQ(shard.axes, std::vector<std::string>{"dp_shard"});
      EXPECT_TRUE(shard.tensor.requires_grad());
      if (shard.name == "embed.weight" && mesh.rank("dp_shard") == 3) {
        EXPECT_EQ(shard.shape, (std::vector<int64_t>{10, 6}));
        EXPECT_EQ(shard.offset, (std::vector<int64_t>{9, 0}));
      }
    }
    EXPECT_EQ(stage->owned().size(), 14u);
  });
  EXPECT_EQ(rows["embed.weight"], 10);
  EXPECT_EQ(rows["layer0.scale"], 1);
  EXPECT_EQ(rows["layer2.bias"], 6);
}

// A parallelizer gave this rank rows 6 to 11 of 12. dp_shard and cp split them again.
TEST(Fsdp2, SplitsThePartOfAParallelizer) {
  ThreadWorld::run(4, [&](Rendezvous& rendezvous) {
    const std::vector<Axis> axes = {{"dp_shard", 2}, {"cp", 2}, {"tp", 1}};
    const DeviceMesh mesh = mesh::build(axes, rendezvous, "test: world");
    const std::vector<Placed> placed = {{"layer0.weight", "tp", 0, 6, 12}};
    auto stage = make_strategy("fsdp2", kFloat)->parallelize(toy_units({}), mesh, placed);
    const Shard& shard = stage->owned()[1];
    EXPECT_EQ(shard.name, "layer0.weight");
    EXPECT_EQ(shard.shape, (std::vector<int64_t>{12, 6}));
    EXPECT_EQ(shard.offset, (std::vector<int64_t>{6 + std::min(2 * mesh.rank("dp_shard_cp"), 6), 0}));
    EXPECT_EQ(shard.axes, (std::vector<std::string>{"tp", "dp_shard_cp"}));
  });
}

TEST(Fsdp2, AcceptsAParameterWithoutRows) {
  Training run = toy("fsdp2", shards(2));
  run.make_units = [](int) {
    Units units = toy_units({});
    toy_at(units, 0).own.push_back({"embed.none", at::empty({0, 6}).set_requires_grad(true), {}});
    std::vector<ToyUnit::Parameter> none = {{"nothing", at::empty({0}).set_requires_grad(true), {}}};
    units.insert(units.begin() + 1,
                 std::make_unique<ToyUnit>("nothing", std::move(none),
                                           [](ToyUnit&, Tensors x, const Batch&) { return x; }));
    return units;
  };
  expect_same(gradients(run), gradients(toy("single", {})));
}

}  // namespace
}  // namespace heddle::tests
