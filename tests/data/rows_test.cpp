// Rows of data sets: packed, of fixed length, or padded to the longest sample of their microbatch.
#include "lib/data/rows.h"

#include <gmock/gmock.h>

#include "heddle/model/batch.h"
#include "lib/data/batches.h"
#include "lib/data/tokens/token_check.h"
#include "tests/data/token_files.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kNoLabel = Batch::kIgnore;

// Sample i holds the tokens 10 i, 10 i + 1, ... If `documents`, its third token begins a document.
class CountingSamples : public IDataset {
 public:
  explicit CountingSamples(std::vector<int64_t> lengths, int64_t row_length = 0, bool documents = false)
      : lengths_(std::move(lengths)), row_length_(row_length), documents_(documents) {}
  int64_t size() const override { return static_cast<int64_t>(lengths_.size()); }
  int64_t length(int64_t sample) const override { return lengths_[static_cast<size_t>(sample)]; }
  int64_t row_length() const override { return row_length_; }
  bool has_documents() const override { return documents_; }
  void read(int64_t sample, const SampleTarget& to) const override {
    for (size_t i = 0; i < to.tokens.size(); ++i) {
      to.tokens[i] = 10 * sample + static_cast<int64_t>(i);
      to.labels[i] = i + 1 < to.tokens.size() ? to.tokens[i] + 1 : kNoLabel;
    }
    if (documents_ && to.tokens.size() > 2) to.begin_document(2);
  }
  std::string digest() const override { return "counting"; }

 private:
  std::vector<int64_t> lengths_;
  int64_t row_length_;
  bool documents_;
};

Rows rows_of(std::vector<int64_t> lengths, const PackRules& rules = {}, int64_t multiple = 1) {
  return Rows(std::make_shared<CountingSamples>(std::move(lengths)), rules, multiple);
}

std::vector<int64_t> numbers_of(const at::Tensor& x) {
  const at::Tensor whole = x.to(at::kLong).contiguous();
  return {whole.const_data_ptr<int64_t>(), whole.const_data_ptr<int64_t>() + whole.numel()};
}

std::vector<Batch> batches_of(const Rows& rows, BatchSplit split, int64_t begin, int64_t end) {
  Batches batches(rows, split, 1000);
  const auto read = batches.read(SampleOrder(rows.size(), Shuffle::off, 0, 0), begin, end);
  std::vector<Batch> out;
  for (const Batch& batch : read) {
    out.push_back(batch);
    for (at::Tensor* x : {&out.back().tokens, &out.back().labels}) *x = x->clone();
  }
  return out;
}

TEST(RaggedRows, AreAsLongAsTheLongestOfTheirMicrobatch) {
  const Rows rows = rows_of({2, 4, 1, 3, 1});
  EXPECT_TRUE(rows.is_ragged());
  EXPECT_EQ(rows.length(), 4);
  const auto batches = batches_of(rows, {2, 1, 0}, 0, 5);
  ASSERT_EQ(batches.size(), 3u);
  EXPECT_THAT(numbers_of(batches[0].tokens), ElementsAre(0, 1, 0, 0, 10, 11, 12, 13));
  EXPECT_THAT(numbers_of(batches[0].labels),
              ElementsAre(1, kNoLabel, kNoLabel, kNoLabel, 11, 12, 13, kNoLabel));
  EXPECT_THAT(numbers_of(batches[0].padding), ElementsAre(0, 0, 1, 1, 0, 0, 0, 0));
  EXPECT_EQ(batches[1].tokens.sizes(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(batches[2].tokens.sizes(), (std::vector<int64_t>{2, 1}));  // the second row is empty
  EXPECT_THAT(numbers_of(batches[2].padding), ElementsAre(0, 1));
  for (const Batch& batch : batches) {
    EXPECT_FALSE(batch.documents.defined());
    EXPECT_TRUE(batch.tokens.is_contiguous());
    check_padding(batch);
  }
}

TEST(RaggedRows, AreRoundedUp) {
  const Rows rows = rows_of({2, 5, 1, 3}, {}, 4);
  const auto batches = batches_of(rows, {1, 1, 0}, 0, 4);
  std::vector<int64_t> lengths;
  for (const Batch& batch : batches) lengths.push_back(batch.tokens.size(1));
  EXPECT_THAT(lengths, ElementsAre(4, 8, 4, 4));
  EXPECT_EQ(rows.length(), 8);
}

// Each rank pads a microbatch to its own longest row. A rank with only empty rows computes one token per row.
TEST(RaggedRows, DifferBetweenRanks) {
  const Rows rows = rows_of({2, 4, 1});
  std::vector<int64_t> lengths;
  for (const int64_t rank : {0, 1})
    for (const Batch& batch : batches_of(rows, {1, 2, rank}, 0, 3)) lengths.push_back(batch.tokens.size(1));
  EXPECT_THAT(lengths, ElementsAre(2, 1, 4, 1));
}

// The count covers the tokens that all ranks compute, including padding and empty rows.
TEST(Rows, CountComputedTokens) {
  const auto computed = [](const Rows& rows, int64_t local_batch, int64_t ranks) {
    const SampleOrder order(rows.size(), Shuffle::off, 0, 0);
    return computed_tokens(rows, {local_batch, ranks, 0}, order, 0, rows.size());
  };
  EXPECT_EQ(computed(rows_of({2, 4, 1, 3, 1}), 2, 1), 8 + 6 + 2);
  EXPECT_EQ(computed(rows_of({2, 4, 1}), 1, 2), 2 + 4 + 1 + 1);
  EXPECT_EQ(computed(rows_of({2, 5, 1, 3}, {}, 4), 1, 1), 4 + 8 + 4 + 4);
  EXPECT_EQ(computed(rows_of({2, 3, 4}, {Packer::thd, 6, {}}), 2, 2), 4 * 6);  // two packs
}

// The second step reuses the buffers of the first step, whose rows were longer.
TEST(RaggedRows, AreReadAgainIntoTheSameMemory) {
  const Rows rows = rows_of({4, 1, 3, 3});
  Batches batches(rows, {2, 1, 0}, 1000);
  const SampleOrder order(4, Shuffle::off, 0, 0);
  const Batch first = batches.read(order, 0, 2)[0];
  const Batch second = batches.read(order, 2, 4)[0];
  EXPECT_EQ(first.tokens.data_ptr(), second.tokens.data_ptr());
  EXPECT_THAT(numbers_of(second.tokens), ElementsAre(20, 21, 22, 30, 31, 32));
  EXPECT_FALSE(second.padding.defined());
}

TEST(PackedRows, AreOfAnySetWithItsDocuments) {
  const Rows rows(std::make_shared<CountingSamples>(std::vector<int64_t>{3, 2, 7}, 0, true),
                  {Packer::thd, 6, {}});
  EXPECT_EQ(rows.size(), 1);
  EXPECT_FALSE(rows.is_ragged());
  const Batch batch = batches_of(rows, {1, 1, 0}, 0, 1)[0];
  EXPECT_THAT(numbers_of(batch.tokens), ElementsAre(0, 1, 2, 10, 11, 0));
  EXPECT_THAT(numbers_of(batch.labels), ElementsAre(1, 2, kNoLabel, 11, kNoLabel, kNoLabel));
  EXPECT_THAT(numbers_of(batch.documents), ElementsAre(0, 2, 3, 5, 6));
  EXPECT_EQ(rows.text_tokens(0), 5);
}

// A data set whose longest() is smaller than its longest sample.
class LyingSamples : public CountingSamples {
 public:
  using CountingSamples::CountingSamples;
  int64_t longest() const override { return 2; }
};

TEST(Rows, RefuseASampleThatDoesNotFit) {
  for (const int64_t row_length : {0, 3}) {
    const Rows rows(std::make_shared<LyingSamples>(std::vector<int64_t>{2, 4}, row_length));
    std::vector<int64_t> tokens(3), labels(3);
    std::vector<int32_t> documents;
    EXPECT_THAT(tests::thrown_by([&] {
                  rows.read(1, 1000, {tokens, labels, documents});
                }),
                HasSubstr("error[plugin_failed] dataset: sample 1 has 4 tokens, and its row has room for 3"));
  }
}

TEST(Rows, RefuseTokensOutsideTheVocabulary) {
  const Rows rows = rows_of({2, 4, 1});
  EXPECT_EQ(tests::thrown_by([&] { check_tokens(std::vector<const Rows*>{&rows}, 13, ""); }), "");
  Batches batches(rows, {1, 1, 0}, 13);
  EXPECT_EQ(tests::thrown_by([&] { batches.read(SampleOrder(3, Shuffle::off, 0, 0), 0, 3); }),
            "error[input] dataset: sample 1 has the token 13; the model's vocabulary has 13 tokens (row 1 of "
            "the data set)\n"
            "  hint: check that the data was tokenized with this model's tokenizer");
}

struct UnlabelledSamples : CountingSamples {
  using CountingSamples::CountingSamples;
  void read(int64_t sample, const SampleTarget& to) const override {
    CountingSamples::read(sample, to);
    to.labels.front() = 1000;
  }
};

TEST(Rows, RefuseLabelsOutsideTheVocabulary) {
  const Rows rows(std::make_shared<UnlabelledSamples>(std::vector<int64_t>{2, 4}));
  std::vector<int64_t> tokens(4), labels(4);
  std::vector<int32_t> documents;
  EXPECT_THAT(
      tests::thrown_by([&] {
        rows.read(1, 1000, {tokens, labels, documents});
      }),
      HasSubstr("error[input] dataset: sample 1 has the label 1000; a label is one of the 1000 tokens"));
}

// A data set whose verify() returns false (unknown) and records in the notes that it ran.
class UnsureSamples : public CountingSamples {
 public:
  using CountingSamples::CountingSamples;
  bool verify(DataNotes& notes) const override {
    const auto found = notes.before.find("unsure");
    notes.now["unsure"] = found == notes.before.end() ? "once" : found->second + ", again";
    return false;
  }
};

TEST(Rows, AreAllReadWhereTheSetDoesNotKnowItsTokens) {
  const ScratchDirectory scratch;
  const std::filesystem::path notes = scratch / "run/.tokens.json";
  const Rows rows(std::make_shared<UnsureSamples>(std::vector<int64_t>{2, 4, 1}));
  const auto check = [&](int64_t vocabulary) {
    return tests::thrown_by([&] { check_tokens(std::vector<const Rows*>{&rows}, vocabulary, notes); });
  };
  EXPECT_THAT(check(13), HasSubstr("sample 1 has the token 13;"));
  EXPECT_EQ(check(21), "");
  EXPECT_EQ(check(21), "");
  EXPECT_TRUE(is_token_notes(notes));
  std::ostringstream text;
  text << std::ifstream(notes).rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("once, again"));
}

}  // namespace
}  // namespace heddle
