// Split of a batch into microbatches: every tensor, and the documents of each row.
#include "lib/train/cut.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "core/schedule/single.h"
#include "lib/train/optimizer/on_device.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

Batch four_rows(std::vector<int> documents) {
  Batch batch;
  batch.tokens = at::arange(20).view({4, 5});
  batch.labels = batch.tokens.add(1);
  batch.positions = batch.tokens.add(2);
  batch.documents = at::tensor(documents, at::kInt);
  batch.padding = at::arange(20).view({4, 5}).remainder(5).eq(4);
  batch.labels.masked_fill_(batch.padding, Batch::kIgnore);
  batch.draws = batch.tokens.add(3);
  batch.extra = at::arange(4);
  return batch;
}

Pipeline rows_each(int64_t rows) {
  Pipeline pipeline;
  pipeline.schedule = schedule::make_single();
  pipeline.config.microbatch_size = rows;
  return pipeline;
}

std::vector<int> documents_of(const Batch& batch) {
  const at::Tensor& all = batch.documents;
  return {all.const_data_ptr<int32_t>(), all.const_data_ptr<int32_t>() + all.numel()};
}

TEST(Cut, CutsEveryTensorAndCountsDocumentsFromTheFirstRow) {
  const Batch batch = four_rows({0, 2, 5, 10, 11, 13, 15, 20});
  const train::Cut cut = train::cut_of(batch, rows_each(2));
  ASSERT_EQ(cut.microbatches, 2);
  const Batch first = train::microbatch_of(batch, cut, 0), second = train::microbatch_of(batch, cut, 1);
  EXPECT_EQ(documents_of(first), (std::vector<int>{0, 2, 5, 10}));
  EXPECT_EQ(documents_of(second), (std::vector<int>{0, 1, 3, 5, 10}));
  for (const BatchMember& member : kBatchMembers) {
    if (member.cut == RowCut::documents) continue;
    EXPECT_TRUE(at::equal(second.*member.tensor, (batch.*member.tensor).narrow(0, 2, 2))) << member.name;
  }
  check_documents(first);
  check_documents(second);
  Batch whole = batch;
  whole.extra = at::ones({3});  // lacks a row per sample
  EXPECT_TRUE(train::microbatch_of(whole, cut, 1).extra.is_same(whole.extra));
  EXPECT_EQ(documents_of(train::microbatch_of(batch, train::cut_of(batch, rows_each(4)), 0)).size(), 8u);
}

TEST(Cut, DocumentsThatBreakTheirRuleAreRefused) {
  const std::string hint =
      "\n  hint: give int32 offsets: 0, where each further document begins in the tokens of all rows laid "
      "end to "
      "end, and the number of tokens; every row begins a document";
  const auto refusal = [](const Batch& batch) {
    return tests::thrown_by([&] { train::cut_of(batch, rows_each(2)); });
  };
  const std::string begins = "error[input] batch: Batch::documents ";
  EXPECT_EQ(refusal(four_rows({1, 5, 10, 15, 20})), begins + "begins with 1, not with 0" + hint);
  EXPECT_EQ(refusal(four_rows({0, 5, 10, 15, 19})),
            begins + "ends with 19, and the batch has 20 tokens" + hint);
  EXPECT_EQ(refusal(four_rows({0, 5, 10, 10, 15, 20})),
            begins + "does not ascend: 10 is followed by 10" + hint);
  EXPECT_EQ(refusal(four_rows({0, 5, 12, 15, 20})),
            begins + "has a document that reaches from row 1 into row 2" + hint);
  Batch wide = four_rows({0, 20});
  wide.documents = at::tensor(std::vector<int64_t>{0, 20}, at::kLong);
  EXPECT_EQ(refusal(wide), begins + "is not an int32 tensor of one dim with two or more elements" + hint);
}

TEST(Cut, MicrobatchesAreOfTheStepOfTheirBatch) {
  Batch batch = four_rows({0, 5, 10, 15, 20});
  batch.step = 7;
  const train::Cut cut = train::cut_of(batch, rows_each(2));
  EXPECT_EQ(train::microbatch_of(batch, cut, 1).step, 7);
  EXPECT_EQ(train::on_device(batch, c10::Device(at::kMeta)).step, 7);
}

TEST(Cut, CopiesEveryTensorToADevice) {
  const Batch there = train::on_device(four_rows({0, 5, 10, 15, 20}), c10::Device(at::kMeta));
  for (const BatchMember& member : kBatchMembers)
    EXPECT_TRUE((there.*member.tensor).is_meta()) << member.name;
}

}  // namespace
}  // namespace heddle
