// Tiles of blocked attention give the same result on every instruction set.
#include "lib/nn/cpu/attend_tile_cpu.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace heddle {
namespace {

constexpr int64_t kTileQueries = 5, kTileDim = 20;
constexpr int64_t kTileWidth = 32;  // columns per padded row

// Operands of a tile whose key blocks are adjacent.
struct TileOperands {
  at::Tensor queries = at::randn({kTileQueries, kTileWidth}), keys, values,
             out = at::zeros({kTileQueries, kTileWidth});
  at::Tensor scores = at::empty({model::kTileRows, model::kWholeKeys});

  explicit TileOperands(int64_t blocks)
      : keys(at::randn({blocks, kTileDim, model::kBlockKeys})),
        values(at::randn({blocks * model::kBlockKeys, kTileWidth})) {}

  template <class AnyTile>
  AnyTile tile(const model::KeyRange* seen) const {
    AnyTile tile;
    tile.rows = kTileQueries;
    tile.seen = seen;
    tile.head_dim = tile.value_dim = kTileDim;
    tile.query_row = tile.value_width = tile.out_row = kTileWidth;
    tile.cap = 3;
    tile.queries = queries.const_data_ptr<float>();
    tile.keys_by_column = keys.const_data_ptr<float>();
    tile.values = values.const_data_ptr<float>();
    tile.out = out.mutable_data_ptr<float>();
    tile.scores = scores.mutable_data_ptr<float>();
    return tile;
  }
};

template <class Attend>
void expect_same_on_every_instruction_set(const Attend& attend) {
  const auto all = model::supported_tile_kernels();
  const std::vector<at::Tensor> want = attend(*all.back());
  for (const model::TileKernels<float>* kernels : all) {
    const std::vector<at::Tensor> got = attend(*kernels);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(at::allclose(got[i], want[i], 1e-5, 1e-5)) << kernels - all.front() << " " << i;
  }
}

TEST(AttentionTile, AttendsToABlockOnEveryInstructionSet) {
  const TileOperands of(1);
  const model::KeyRange seen[kTileQueries] = {{0, 9}, {3, 64}, {7, 7}, {40, 61}, {0, 64}};
  expect_same_on_every_instruction_set([&](const model::TileKernels<float>& kernels) {
    const at::Tensor totals = at::zeros({kTileQueries}), largest = at::full({kTileQueries}, -INFINITY);
    of.out.zero_();
    of.scores.fill_(NAN);
    auto tile = of.tile<model::AttendTile<float>>(seen);
    tile.totals = totals.mutable_data_ptr<float>();
    tile.largest = largest.mutable_data_ptr<float>();
    kernels.attend(tile);
    EXPECT_EQ(totals[2].item<float>(), 0.0F);  // query 2 sees no key
    return std::vector<at::Tensor>{of.out.clone(), totals, largest};
  });
}

TEST(AttentionTile, AttendsToAllKeysAtOnceOnEveryInstructionSet) {
  const TileOperands of(3);
  const model::KeyRange seen[kTileQueries] = {{20, 190}, {70, 131}, {7, 7}, {21, 22}, {128, 192}};
  expect_same_on_every_instruction_set([&](const model::TileKernels<float>& kernels) {
    const at::Tensor log_sums = at::empty({kTileQueries});
    of.out.fill_(NAN);  // the kernel overwrites all of it
    of.scores.fill_(NAN);
    auto tile = of.tile<model::WholeTile<float>>(seen);
    tile.log_sums = log_sums.mutable_data_ptr<float>();
    kernels.attend_whole(tile);
    EXPECT_TRUE(at::equal(of.out[2], at::zeros({kTileWidth})));  // query 2 sees no key
    EXPECT_EQ(log_sums[2].item<float>(), -INFINITY);
    EXPECT_TRUE(at::allclose(of.out[3], of.values[21])) << "its only key";
    return std::vector<at::Tensor>{of.out.clone(), log_sums.exp()};
  });
}

// Hidden keys share vector registers with visible keys.
TEST(AttentionTile, HiddenKeysOfAnySizeChangeNoBit) {
  const TileOperands of(1);
  const model::KeyRange seen[kTileQueries] = {{0, 10}, {2, 10}, {7, 7}, {3, 9}, {0, 10}};
  const auto attend_by = [&](const model::TileKernels<float>& kernels) {
    const at::Tensor log_sums = at::empty({kTileQueries});
    auto tile = of.tile<model::WholeTile<float>>(seen);
    tile.cap = 0;
    tile.log_sums = log_sums.mutable_data_ptr<float>();
    kernels.attend_whole(tile);
    return std::vector<at::Tensor>{of.out.clone(), log_sums};
  };
  for (const model::TileKernels<float>* kernels : model::supported_tile_kernels()) {
    const std::vector<at::Tensor> want = attend_by(*kernels);
    const at::Tensor hidden = of.keys.select(2, 12), before = hidden.clone();
    for (const double size : {30.0, 1e4, 1e30}) {
      hidden.copy_(before).mul_(size);
      const std::vector<at::Tensor> got = attend_by(*kernels);
      for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::equal(got[i], want[i])) << size << " " << i;
    }
    hidden.copy_(before);
  }
}

}  // namespace
}  // namespace heddle
