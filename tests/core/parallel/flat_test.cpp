// Ranges of flattened parameters as boxes and shards, and neighbors that share a buffer.
#include "heddle/parallel/flat.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace heddle::parallel {
namespace {

TEST(FlatRanges, BecomeBoxesWhenSplitInsideRows) {
  const std::vector<int64_t> matrix = {4, 5};
  EXPECT_EQ(boxes_of_range(matrix, 3, 17),
            (std::vector<FlatBox>{{3, {0, 3}, {1, 2}}, {5, {1, 0}, {2, 5}}, {15, {3, 0}, {1, 2}}}));
  EXPECT_EQ(boxes_of_range(matrix, 6, 8), (std::vector<FlatBox>{{6, {1, 1}, {1, 2}}}));
  EXPECT_EQ(boxes_of_range(matrix, 3, 7), (std::vector<FlatBox>{{3, {0, 3}, {1, 2}}, {5, {1, 0}, {1, 2}}}));
  EXPECT_EQ(boxes_of_range(matrix, 0, 20), (std::vector<FlatBox>{{0, {0, 0}, {4, 5}}}));
  EXPECT_TRUE(boxes_of_range(matrix, 7, 7).empty());
  EXPECT_EQ(boxes_of_range({}, 0, 1), std::vector<FlatBox>{FlatBox{}});
}

TEST(FlatRanges, FormBoxesOfThreeDimsInOrder) {
  const std::vector<int64_t> sizes = {3, 4, 5};
  for (int64_t begin = 0; begin < 60; ++begin)
    for (int64_t end = begin + 1; end <= 60; ++end) {
      int64_t at = begin;
      for (const FlatBox& box : boxes_of_range(sizes, begin, end)) {
        ASSERT_EQ(box.begin, at);
        ASSERT_EQ(box.offset[0] * 20 + box.offset[1] * 5 + box.offset[2], at);
        const int64_t count = box.size[0] * box.size[1] * box.size[2];
        const int64_t last = (box.offset[0] + box.size[0] - 1) * 20 + (box.offset[1] + box.size[1] - 1) * 5 +
                             box.offset[2] + box.size[2] - 1;
        ASSERT_EQ(last, at + count - 1);  // its elements are consecutive
        at += count;
      }
      ASSERT_EQ(at, end);
    }
}

TEST(FlatRanges, AreShardsThatShareTheBuffer) {
  Shard whole;
  whole.name = "w";
  whole.shape = {4, 10};
  whole.offset = {0, 5};  // a parallelizer kept columns 5 to 10
  const std::vector<int64_t> sizes = {4, 5};
  at::Tensor held = at::arange(4, at::kFloat);
  const std::vector<Shard> shards = shards_of_range(whole, sizes, 8, 12, held, true);
  ASSERT_EQ(shards.size(), 2u);
  EXPECT_EQ(shards[0].offset, (std::vector<int64_t>{1, 8}));
  EXPECT_EQ(shards[1].offset, (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(shards[1].tensor.sizes().vec(), (std::vector<int64_t>{1, 2}));
  for (const Shard& shard : shards) {
    EXPECT_TRUE(shard.tensor.is_leaf() && shard.tensor.requires_grad());
    EXPECT_FALSE(shard.tensor.is_view());
  }
  held[3] = 7;
  EXPECT_EQ(shards[1].tensor[0][1].item<float>(), 7);
}

TEST(FlatRanges, AreOneEmptyShardWhenEmpty) {
  Shard whole;
  whole.shape = {4, 5};
  whole.offset = {0, 0};
  const std::vector<Shard> shards =
      shards_of_range(whole, whole.shape, 20, 20, at::empty({0}, at::kFloat), false);
  ASSERT_EQ(shards.size(), 1u);
  EXPECT_EQ(shards[0].tensor.sizes().vec(), (std::vector<int64_t>{0, 5}));
  EXPECT_FALSE(shards[0].tensor.requires_grad());
}

TEST(FlatBuckets, CloseWhenTheyAreFullOrTheDtypeChanges) {
  const auto of = [](int64_t elements, at::ScalarType dtype = at::kFloat) {
    return at::empty({elements}, dtype);
  };
  const std::vector<at::Tensor> tensors = {of(3), of(2), of(1), of(9), of(1, at::kDouble)};
  EXPECT_EQ(flat_buckets(tensors, 20), (std::vector<FlatBucket>{{0, 2, 5}, {2, 4, 10}, {4, 5, 1}}));
  EXPECT_TRUE(flat_buckets({}, 20).empty());
}

}  // namespace
}  // namespace heddle::parallel
