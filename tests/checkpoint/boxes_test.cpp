// Overlap tests between boxes of one tensor.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "checkpoint/folder.h"
#include "heddle/checkpoint/manifest.h"
#include "heddle/checkpoint/sharded.h"

namespace heddle {
namespace {

using checkpoint::are_apart;
using checkpoint::Box;
using tests::error_of;
using tests::Folder;

using Boxes = std::vector<Box>;

bool touch(const Box& a, const Box& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  for (size_t dim = 0; dim < a.size.size(); ++dim)
    if (a.offset[dim] + a.size[dim] <= b.offset[dim] || b.offset[dim] + b.size[dim] <= a.offset[dim])
      return false;
  return true;
}

bool any_touch(const Boxes& boxes) {
  for (size_t i = 0; i < boxes.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (touch(boxes[i], boxes[j])) return true;
  return false;
}

// Splits a tensor's box repeatedly at random places into disjoint boxes, some of them empty.
Boxes cut(const std::vector<int64_t>& shape, int cuts, std::mt19937& random) {
  Boxes boxes{{std::vector<int64_t>(shape.size(), 0), shape}};
  for (int i = 0; i < cuts; ++i) {
    Box& box = boxes[random() % boxes.size()];
    const size_t dim = random() % shape.size();
    const int64_t at = static_cast<int64_t>(random() % static_cast<uint64_t>(box.size[dim] + 1));
    Box rest = box;
    rest.offset[dim] += at;
    rest.size[dim] -= at;
    box.size[dim] = at;
    boxes.push_back(rest);
  }
  std::shuffle(boxes.begin(), boxes.end(), random);
  return boxes;
}

TEST(Boxes, AreApartWhereATensorWasCutAndNotWhenOneHasMoved) {
  std::mt19937 random(5);
  int moved_into_another = 0;
  for (int round = 0; round < 400; ++round) {
    Boxes boxes = cut({9, 7, 5}, 1 + round % 12, random);
    EXPECT_TRUE(are_apart(boxes)) << round;
    Box& box = boxes[random() % boxes.size()];
    const size_t dim = random() % 3;
    if (box.offset[dim] == 0) continue;
    --box.offset[dim];
    moved_into_another += any_touch(boxes);
    EXPECT_TRUE(!any_touch(boxes) || !are_apart(boxes)) << round;
  }
  EXPECT_GT(moved_into_another, 50);
}

TEST(Boxes, AreDisjointForFlatPiecesAndGrids) {
  // Flat ranges of a matrix: each is the end of a row, whole rows, and the start of a row.
  EXPECT_TRUE(are_apart(Boxes{{{0, 0}, {2, 5}},
                              {{2, 0}, {1, 3}},
                              {{2, 3}, {1, 2}},
                              {{3, 0}, {4, 5}},
                              {{7, 0}, {1, 4}},
                              {{7, 4}, {1, 1}}}));
  Boxes grid;
  for (int64_t row = 0; row < 120; ++row)
    for (int64_t column = 0; column < 90; ++column) grid.push_back({{row * 3, column * 2}, {3, 2}});
  EXPECT_TRUE(are_apart(grid));
  grid[5000].size[1] = 3;
  EXPECT_FALSE(are_apart(grid));
  EXPECT_TRUE(are_apart(Boxes{{{}, {}}}));
  EXPECT_FALSE(are_apart(Boxes{{{}, {}}, {{}, {}}}));
  EXPECT_TRUE(are_apart(Boxes{}));
}

// No plane separates four boxes around a fifth. No layout produces them, so are_apart() reports an overlap.
TEST(Boxes, AroundOneAnotherCountAsOverlapping) {
  EXPECT_FALSE(are_apart(
      Boxes{{{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}}));
}

// The boxes have as many elements as the tensor, but do not cover it.
TEST(Boxes, AreRefusedInAManifestWhenTheyOverlap) {
  const Folder folder;
  const checkpoint::SavedBox half{"a", "w", {{0}, {2}}, {""}};
  const checkpoint::Manifest manifest{{{"w", {at::kFloat, {4}, {half, half}}}}, ""};
  EXPECT_EQ(
      error_of(folder, [&] { checkpoint::read_manifest(folder.write("manifest.json", written(manifest))); }),
      "error[input] FOLDER/manifest.json: tensor \"w\": its boxes overlap\n"
      "  hint: resume from another checkpoint, or copy this one again");
}

TEST(Boxes, AreNotWrittenWhenTheyOverlap) {
  const Folder folder;
  const std::string first = R"([[0,"w","F32",[4],[0],[2]]])", second = R"([[0,"w","F32",[4],[1],[2]]])";
  const std::vector<std::string> ranks{first, second};
  EXPECT_EQ(error_of(folder, [&] { checkpoint::plan_writing(ranks); }),
            "error[internal] checkpoint: the shards of \"w\" overlap");
}

}  // namespace
}  // namespace heddle
