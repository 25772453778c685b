// Megatron's layouts: padding, buckets, whole rows, shard maps and boxes.
#include <gtest/gtest.h>

#include <numeric>

#include "plugins/megatron_fsdp/layout/layout.h"

namespace heddle::tests {
namespace {

using namespace megatron_fsdp;

BufferLayout buffer(const std::vector<int64_t>& elements, const BufferRules& rules) {
  std::vector<BufferItem> items;
  for (const int64_t count : elements) items.push_back({count});
  return lay_out_buffer(items, rules);
}

TEST(MegatronLayout, StartsParametersAtMultiplesOf64) {
  const std::pair<int64_t, int64_t> rows[] = {{0, 0}, {1, 64}, {63, 64}, {64, 64}, {65, 128}};
  for (const auto& [element, padded] : rows) EXPECT_EQ(pad_parameter_start(element), padded) << element;
}

TEST(MegatronLayout, PadsBucketsForRanksAndBusBandwidth) {
  EXPECT_EQ(pad_bucket_end(1, 4, Padding::narrow), 128);
  EXPECT_EQ(pad_bucket_end(1, 4, Padding::wide), 65536);
  EXPECT_EQ(pad_bucket_end(1, 3, Padding::narrow), 384);
  EXPECT_EQ(pad_bucket_end(1, 256, Padding::narrow), 256);
  EXPECT_EQ(pad_bucket_end(1, 3, Padding::none), 1);
}

TEST(MegatronLayout, PlacesParametersFromTheLastToTheFirst) {
  const BufferLayout layout = buffer({100 * 100, 50 * 50}, {});
  EXPECT_EQ(layout.items[1].range, (megatron_fsdp::Range{0, 2500}));
  EXPECT_EQ(layout.items[0].range, (megatron_fsdp::Range{2500, 12500}));
  EXPECT_EQ(layout.buckets, (std::vector<megatron_fsdp::Range>{{0, 12500}}));
}

TEST(MegatronLayout, ClosesABucketThatHasReachedItsSize) {
  const BufferLayout layout = buffer({10000, 10000, 10000}, {15000, 1, Padding::none});
  EXPECT_EQ(layout.buckets, (std::vector<megatron_fsdp::Range>{{0, 20000}, {20000, 30000}}));
  EXPECT_EQ(layout.items[2].bucket, 0);
  EXPECT_EQ(layout.items[0].bucket, 1);
}

TEST(MegatronLayout, PadsForTheDistributedOptimizerAndKeepsWhatIsUnpadded) {
  const BufferLayout layout = buffer({100, 9025, 95, 9025, 1}, {9000, 3, Padding::narrow});
  for (const auto& place : layout.items) EXPECT_EQ(place.range.begin % 64, 0);
  for (const megatron_fsdp::Range& bucket : layout.buckets) EXPECT_EQ(bucket.end % 384, 0);
  EXPECT_EQ(layout.buckets, (std::vector<megatron_fsdp::Range>{{0, 9216}, {9216, 18432}, {18432, 18816}}));
  EXPECT_EQ(layout.unpadded, (std::vector<int64_t>{64 + 9025, 128 + 9025, 100}));
  EXPECT_EQ(layout.items[0].bucket, 2);
  EXPECT_EQ(layout.elements, layout.buckets.back().end);
}

TEST(MegatronLayout, GivesASharedEmbeddingASeparateBucket) {
  for (size_t shared = 0; shared < 4; ++shared) {
    std::vector<BufferItem> items(4, BufferItem{10});
    items[shared].alone = true;
    const BufferLayout layout = lay_out_buffer(items, {1000, 1, Padding::none});
    for (size_t i = 0; i < 4; ++i)
      EXPECT_EQ(layout.items[i].bucket == layout.items[shared].bucket, i == shared) << shared << " " << i;
    for (const megatron_fsdp::Range& bucket : layout.buckets) EXPECT_GT(bucket.size(), 0);
  }
}

// A second implementation of the rule: a bucket takes items until it is full.
TEST(MegatronLayout, AssignsTenLayersToBucketsOfManySizes) {
  for (const bool bias : {false, true})
    for (const int64_t size : {0, 9000, 9025, 9050, 18000, 18050, 20000}) {
      std::vector<int64_t> elements;
      for (int layer = 0; layer < 10; ++layer) {
        elements.push_back(95 * 95);
        if (bias) elements.push_back(95);
      }
      std::vector<int64_t> want(1, 0);
      for (auto it = elements.rbegin(); it != elements.rend(); ++it) {
        if (size > 0 && want.back() >= size) want.push_back(0);
        want.back() += *it;
      }
      const BufferLayout layout = buffer(elements, {size, 2, Padding::none});
      std::vector<int64_t> got;
      for (const megatron_fsdp::Range& bucket : layout.buckets) got.push_back(bucket.size());
      EXPECT_EQ(got, want) << size << (bias ? " with biases" : "");
    }
}

RowLayout rows(const std::vector<std::pair<int64_t, int64_t>>& shapes, int ranks) {
  std::vector<RowItem> items;
  for (const auto& [count, width] : shapes) items.push_back({count * width, width});
  return lay_out_rows(items, ranks);
}

TEST(MegatronRows, FillTheGapBehindALargeParameter) {
  const RowLayout three = rows({{5, 4}, {2, 6}, {3, 1}}, 2);
  EXPECT_EQ(three.offsets, (std::vector<int64_t>{0, 24, 20}));
  EXPECT_EQ(three.elements, 48);
  const RowLayout two = rows({{4, 4}, {1, 6}}, 2);
  EXPECT_EQ(two.offsets, (std::vector<int64_t>{0, 18}));
  EXPECT_EQ(two.elements, 24);
}

TEST(MegatronRows, PlaceTheHeadOfALargeParameterAtTheEndOfAGap) {
  const std::vector<std::pair<int64_t, int64_t>> shapes = {{2, 6}, {4, 4}, {4, 4}, {1, 2}, {1, 6}};
  const RowLayout layout = rows(shapes, 5);
  EXPECT_EQ(layout.offsets, (std::vector<int64_t>{0, 12, 32, 28, 48}));
  EXPECT_EQ(layout.elements, 60);
  const std::vector<std::vector<int64_t>> want = {
      {2, 0, 0, 0, 0}, {0, 3, 1, 0, 0}, {0, 0, 1, 3, 0}, {0, 0, 1, 0, 0}, {0, 0, 0, 0, 1}};
  for (size_t i = 0; i < shapes.size(); ++i)
    for (int rank = 0; rank < 5; ++rank) {
      const int64_t elements = shapes[i].first * shapes[i].second;
      const megatron_fsdp::Range item{layout.offsets[i], layout.offsets[i] + elements};
      const ShardMap map = map_shard(item, {0, layout.elements}, 5, rank);
      EXPECT_EQ(map.parameter.size(), want[i][rank] * shapes[i].second) << i << " on " << rank;
    }
}

// For many shapes: every item is placed once, items do not overlap, and no row is split.
TEST(MegatronRows, NeverSplitARow) {
  uint32_t state = 7;
  const auto draw = [&](int64_t most) { return 1 + ((state = state * 1664525u + 1013904223u) >> 8) % most; };
  for (int round = 0; round < 300; ++round) {
    const int ranks = static_cast<int>(draw(5));
    std::vector<RowItem> items;
    for (int64_t i = draw(9); i > 0; --i) {
      const int64_t width = draw(12);
      items.push_back({width * draw(40), width});
    }
    if (round % 3 == 0) items.push_back({0, 5});
    const RowLayout layout = lay_out_rows(items, ranks);
    ASSERT_EQ(layout.elements % ranks, 0);
    const int64_t part = layout.elements / ranks;
    std::vector<int> used(static_cast<size_t>(layout.elements), 0);
    for (size_t i = 0; i < items.size(); ++i)
      for (int64_t row = 0; row < items[i].elements / items[i].row; ++row) {
        const int64_t begin = layout.offsets[i] + row * items[i].row, end = begin + items[i].row;
        ASSERT_LE(end, layout.elements);
        ASSERT_EQ(begin / part, (end - 1) / part) << "round " << round << ", item " << i << ", row " << row;
        for (int64_t at = begin; at < end; ++at) ASSERT_EQ(used[at]++, 0);
      }
  }
}

TEST(MegatronShards, AreMappedInFourCoordinateSystems) {
  const ShardMap map = map_shard({100, 300}, {64, 320}, 2, 1);
  EXPECT_EQ(map, (ShardMap{{192, 300}, {128, 236}, {0, 108}, {92, 200}}));
  EXPECT_EQ(map_shard({100, 150}, {64, 320}, 2, 1), ShardMap{});
}

TEST(MegatronShards, HoldEveryElementOnce) {
  for (const int ranks : {1, 2, 3, 8}) {
    const std::vector<int64_t> elements = {100, 9025, 95, 9025, 1};
    const BufferLayout layout = buffer(elements, {9000, ranks, Padding::narrow});
    int64_t held = 0;
    for (const auto& place : layout.items)
      for (int rank = 0; rank < ranks; ++rank)
        held += map_shard(place.range, layout.buckets[place.bucket], ranks, rank).parameter.size();
    EXPECT_EQ(held, std::accumulate(elements.begin(), elements.end(), int64_t{0}));
  }
}

}  // namespace
}  // namespace heddle::tests
