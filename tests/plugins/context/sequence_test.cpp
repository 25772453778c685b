// Assignment of tokens to the ranks of cp.
#include "plugins/context/sequence.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace heddle::tests {
namespace {

std::vector<int64_t> own_tokens(std::vector<int64_t> tokens, std::vector<int> documents,
                                context::Place place) {
  Batch batch;
  batch.tokens = at::tensor(tokens, at::kLong).view({1, -1});
  if (!documents.empty()) batch.documents = at::tensor(documents, at::kInt);
  context::cut(batch, place);
  const int64_t* const own = batch.tokens.const_data_ptr<int64_t>();
  return {own, own + batch.tokens.numel()};
}

TEST(ContextSequence, IsSplitFromBothEnds) {
  using context::Cut;
  using Tokens = std::vector<int64_t>;
  const Tokens seven = {1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(own_tokens(seven, {}, {0, 2, Cut::balanced}), (Tokens{1, 2, 7, 0}));
  EXPECT_EQ(own_tokens(seven, {}, {1, 2, Cut::balanced}), (Tokens{3, 4, 5, 6}));
  EXPECT_EQ(own_tokens(seven, {}, {2, 4, Cut::balanced}), (Tokens{3, 6}));
  EXPECT_EQ(own_tokens(seven, {}, {1, 2, Cut::contiguous}), (Tokens{5, 6, 7, 0}));
  // If 2 * ranks divides all documents, each document is split separately.
  const Tokens twelve = {1, 2, 3, 4, 11, 12, 13, 14, 15, 16, 17, 18};
  EXPECT_EQ(own_tokens(twelve, {0, 4, 12}, {0, 2, Cut::balanced}), (Tokens{1, 4, 11, 12, 17, 18}));
  EXPECT_EQ(own_tokens(twelve, {0, 4, 12}, {1, 2, Cut::balanced}), (Tokens{2, 3, 13, 14, 15, 16}));
}

TEST(ContextSequence, PadsWithADocumentAndRestartsPositions) {
  Batch batch;
  batch.tokens = at::arange(1, 15).view({2, 7});
  batch.documents = at::tensor({0, 3, 7, 12, 14}, at::kInt);
  context::cut(batch, {1, 2, context::Cut::contiguous});
  EXPECT_EQ(batch.whole_sequence, 8);
  EXPECT_TRUE(at::equal(batch.documents, at::tensor({0, 3, 7, 8, 13, 15, 16}, at::kInt)));
  EXPECT_TRUE(at::equal(batch.positions, at::tensor({1, 2, 3, 0, 4, 0, 1, 0}, at::kLong).view({2, 4})));
}

// Documents of all lengths, one that is longer than all others together, and whole rows.
TEST(ContextSequence, GivesRanksEqualWorkAndEveryTokenOnce) {
  const std::vector<std::vector<int32_t>> rows = {
      {0, 4096},
      {0, 1000, 1003, 1777, 4000, 4096},
      {0, 3500, 3600, 3651, 3852, 4096},
      {0, 64, 128, 192, 1280, 4096},
      [] {
        std::vector<int32_t> many = {0};
        for (int32_t i = 0; many.back() < 4096; ++i)
          many.push_back(std::min(4096, many.back() + 17 + i * 37 % 211));
        return many;
      }()};
  for (const auto& documents : rows)
    for (const int ranks : {2, 4, 8}) {
      const context::Assignment all = context::assign(documents, ranks, context::Cut::balanced);
      std::vector<int> holders(4096);
      int64_t most = 0, sum = 0;
      for (const auto& stretches : all) {
        int64_t tokens = 0;
        for (const context::Stretch& one : stretches) {
          tokens += one.end - one.begin;
          for (int32_t token = one.begin; token < one.end; ++token) ++holders[static_cast<size_t>(token)];
          EXPECT_EQ(context::document_at(documents, one.begin), context::document_at(documents, one.end - 1));
        }
        EXPECT_EQ(tokens, 4096 / ranks);
        const int64_t work = context::work_of(stretches, documents);
        most = std::max(most, work);
        sum += work;
      }
      EXPECT_EQ(std::count(holders.begin(), holders.end(), 1), 4096);
      EXPECT_LE(static_cast<double>(most) * ranks / static_cast<double>(sum), 1.05)
          << ranks << " ranks, " << documents.size() - 1 << " documents";
    }
}

}  // namespace
}  // namespace heddle::tests
