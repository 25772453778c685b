// Initial values: equal bits however a parameter is split, plausible moments, one stream per name and seed.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/std.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "core/parallel/single.h"
#include "heddle/base/error.h"
#include "heddle/parallel/build.h"
#include "heddle/parallel/stages.h"
#include "heddle/transport/threads.h"
#include "tests/thrown.h"
#include "tests/toy_unit.h"

namespace heddle {
namespace {

Shard box(const std::string& name, std::vector<int64_t> shape, std::vector<int64_t> offset,
          std::vector<int64_t> sizes, at::ScalarType dtype = at::kFloat) {
  Shard shard;
  shard.name = name;
  shard.tensor = at::empty(sizes, dtype);
  shard.shape = std::move(shape);
  shard.offset = std::move(offset);
  shard.init = {Init::Kind::normal, 0.02};
  return shard;
}

at::Tensor filled(Shard shard, uint64_t seed) {
  parallel::initialise(shard, seed);
  return shard.tensor;
}

TEST(Initialise, GivesABoxTheBitsOfTheWholeParameter) {
  const at::Tensor whole = filled(box("w", {7, 5, 11}, {0, 0, 0}, {7, 5, 11}), 3);
  for (int64_t row = 0; row < 7; ++row)
    for (int64_t column : {0, 2, 4}) {
      const at::Tensor part = filled(box("w", {7, 5, 11}, {row, column, 3}, {1, 1, 8}), 3);
      EXPECT_TRUE(at::equal(part, whole.narrow(0, row, 1).narrow(1, column, 1).narrow(2, 3, 8)));
    }
  const at::Tensor rows = filled(box("w", {7, 5, 11}, {2, 0, 0}, {4, 5, 11}), 3);
  EXPECT_TRUE(at::equal(rows, whole.narrow(0, 2, 4)));
}

TEST(Initialise, DependsOnNameAndSeed) {
  const at::Tensor values = filled(box("a", {64}, {0}, {64}), 1);
  EXPECT_FALSE(at::equal(values, filled(box("b", {64}, {0}, {64}), 1)));
  EXPECT_FALSE(at::equal(values, filled(box("a", {64}, {0}, {64}), 2)));
  EXPECT_TRUE(at::equal(values, filled(box("a", {64}, {0}, {64}), 1)));
}

TEST(Initialise, HasTheMomentsOfTheNormalDistribution) {
  const at::Tensor values = filled(box("w", {400, 500}, {0, 0}, {400, 500}), 42).to(at::kDouble) / 0.02;
  EXPECT_NEAR(values.mean().item<double>(), 0.0, 0.01);
  EXPECT_NEAR(values.std().item<double>(), 1.0, 0.01);
  EXPECT_NEAR(values.pow(4).mean().item<double>(), 3.0, 0.1);
}

TEST(Initialise, RoundsToALowerDtype) {
  const at::Tensor whole = filled(box("w", {33}, {0}, {33}), 5);
  EXPECT_TRUE(at::equal(filled(box("w", {33}, {0}, {33}, at::kBFloat16), 5), whole.to(at::kBFloat16)));
}

TEST(Initialise, FillsOnesZerosAndEmptyShards) {
  Shard shard = box("w", {4, 3}, {0, 0}, {4, 3});
  shard.init.kind = Init::Kind::ones;
  EXPECT_EQ(filled(shard, 1).sum().item<float>(), 12.0f);
  shard.init.kind = Init::Kind::zeros;
  EXPECT_EQ(filled(shard, 1).abs().sum().item<float>(), 0.0f);
  EXPECT_EQ(filled(box("w", {4, 3}, {4, 0}, {0, 3}), 1).numel(), 0);
}

TEST(WholeShard, RecordsTheSplitOfAParallelizer) {
  at::Tensor tensor = at::empty({3, 8}, at::kMeta);
  const std::vector<Placed> placed = {{"other", "tp", 0, 1, 9}, {"w", "tp", 1, 16, 30}};
  const Shard shard = whole_shard({"w", &tensor, {}, false}, placed);
  EXPECT_EQ(shard.shape, (std::vector<int64_t>{3, 30}));
  EXPECT_EQ(shard.offset, (std::vector<int64_t>{0, 16}));
  EXPECT_EQ(shard.axes, (std::vector<std::string>{"tp"}));
}

TEST(WholeShard, RefusesADimThatTwoParallelizersSplit) {
  at::Tensor tensor = at::empty({3, 8}, at::kMeta);
  const std::vector<Placed> placed = {{"w", "tp", 1, 16, 30}, {"w", "ep", 1, 8, 30}};
  EXPECT_EQ(tests::thrown_by([&] {
              whole_shard({"w", &tensor, {}, false}, placed);
            }),
            "error[config] distributed: dim 1 of \"w\" is split along tp and along ep\n"
            "  hint: let one of the two parallelizers leave the parameter, or split another dim of it");
}

TEST(Initialise, PassesTheWholeIndexAndADrawToAFunction) {
  constexpr Init by = Init::by(
      [](const InitElement& element) {
        const auto index = element.index;
        return element.std * static_cast<double>(20 * element.shape[0] * index[0] + index[1]) +
               (index[1] == 2 ? element.normal : 0);
      },
      1.0);
  Shard whole = box("w", {5, 4}, {0, 0}, {5, 4}), part = box("w", {5, 4}, {2, 1}, {3, 2});
  whole.init = part.init = by;
  const at::Tensor all = filled(whole, 7), some = filled(part, 7);
  EXPECT_TRUE(at::equal(all.narrow(0, 2, 3).narrow(1, 1, 2), some));
  EXPECT_EQ(all[3][1].item<float>(), 301);
  EXPECT_NE(all[3][2].item<float>(), 302);
  EXPECT_NE((all[3][2] - 302).item<float>(), (all[4][2] - 402).item<float>());
  Shard none = box("w", {2}, {0}, {2});
  none.init.kind = Init::Kind::function;
  EXPECT_THROW(filled(none, 7), Error);
}

// Returns the error of building with a table of places below 3 with these values.
std::string building_with(const std::vector<int64_t>& values) {
  Init places = Init::by([](const InitElement&) { return 0.0; });
  places.below = 3;
  const ParameterSource source = [&](const Shard& shard) {
    return shard.tensor.copy_(at::tensor(values)), true;
  };
  return tests::thrown_by([&] {
    ThreadWorld::run(1, [&](Rendezvous& world) {
      Units units;
      const auto body = [](const at::Tensor& table, Tensors, const Batch&) { return table; };
      units.push_back(
          tests::unit_of("table", at::empty({2}, at::device(at::kMeta).dtype(at::kLong)), body, places));
      Plan plan;
      plan.strategy = parallel::make_single();
      parallel::build(std::move(units), plan, mesh::build(std::vector<Axis>{{"tp", 1}}, world, ""), source,
                      1);
    });
  });
}

TEST(Places, AreCheckedForASource) {
  const std::string begin = "error[input] model: the parameter 'table' holds ";
  const std::string end = "; expected 0 to 2\n  hint: do config.json and the weights belong together?";
  EXPECT_EQ(building_with({0, 2}), "");
  EXPECT_EQ(building_with({1, 3}), begin + "3" + end);
  EXPECT_EQ(building_with({-1, 1}), begin + "-1" + end);
}

}  // namespace
}  // namespace heddle
