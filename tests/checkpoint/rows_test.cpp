// Split of a file's rows over ranks: every byte is written once, shares are equal, and no range is too large.
#include "lib/checkpoint/safetensors/rows.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace heddle {
namespace {

using checkpoint::TensorToWrite;

const std::vector<std::vector<TensorToWrite>> kFiles = {
    {{"embedding", at::kFloat, {1000, 16}}, {"norm", at::kFloat, {7}}},
    {{"scale", at::kLong, {}}, {"empty", at::kFloat, {0, 4}}, {"head", at::kBFloat16, {333, 16}}}};
constexpr uint64_t kRow = 64, kTotal = 1000 * kRow + 28 + 8 + 333 * 32;

uint64_t bytes_of(const checkpoint::Rows& rows) {
  const TensorToWrite& tensor = kFiles[rows.file][rows.tensor];
  uint64_t bytes = c10::elementSize(tensor.dtype) * static_cast<uint64_t>(rows.count);
  for (size_t dim = 1; dim < tensor.shape.size(); ++dim) bytes *= static_cast<uint64_t>(tensor.shape[dim]);
  return bytes;
}

TEST(Rows, CoverEveryByteOnceInEqualShares) {
  for (const int ranks : {1, 2, 3, 5}) {
    uint64_t total = 0, largest = 0, least = kTotal;
    std::vector<uint64_t> next = {0, 0};
    for (int rank = 0; rank < ranks; ++rank) {
      uint64_t share = 0;
      for (const checkpoint::Rows& rows : checkpoint::deal_rows(kFiles, 10 * kRow, rank, ranks)) {
        EXPECT_EQ(rows.position, next[rows.file]) << "neighbours, in the order of the file";
        EXPECT_LE(bytes_of(rows), 10 * kRow);
        next[rows.file] += bytes_of(rows);
        share += bytes_of(rows);
      }
      total += share;
      largest = std::max(largest, share);
      least = std::min(least, share);
    }
    EXPECT_EQ(total, kTotal);
    EXPECT_LE(largest - least, 2 * 10 * kRow) << ranks;
  }
}

TEST(Rows, AreDistributedWholeForSmallModels) {
  const std::vector<std::vector<TensorToWrite>> one = {{{"wide", at::kFloat, {3, 1000}}}};
  for (int rank = 0; rank < 3; ++rank) {
    const std::vector<checkpoint::Rows> rows = checkpoint::deal_rows(one, 100, rank, 3);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0], (checkpoint::Rows{0, 0, rank, 1, static_cast<uint64_t>(rank) * 4000}));
  }
}

}  // namespace
}  // namespace heddle
