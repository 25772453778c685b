// Files of prepared samples: labels, every kind of damage, padding.
#include <gmock/gmock.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "heddle/model/batch.h"
#include "lib/data/rows.h"
#include "lib/data/sample_order.h"
#include "lib/data/samples/sample_set.h"
#include "sample_files.h"
#include "tests/thrown.h"
#include "token_files.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kNone = Batch::kIgnore;
const std::vector<TestSample> kSamples = {
    {{10, 11, 12, 13, 14}, {{2, 3}, {4, 5}}}, {{20, 21}, {{0, 2}}}, {{30}, {}}};

struct ReadSample {
  std::vector<int64_t> tokens, labels;
};

ReadSample read_of(const IDataset& set, int64_t sample) {
  ReadSample out;
  out.tokens.resize(static_cast<size_t>(set.length(sample)));
  out.labels.resize(out.tokens.size());
  std::vector<int32_t> documents;
  set.read(sample, {out.tokens, out.labels, documents, 0});
  return out;
}

class PreparedSamples : public ::testing::Test {
 protected:
  std::unique_ptr<IDataset> opened(uint32_t flags = 0, int64_t pack = 0,
                                   const std::string& description = "{}") {
    write_samples(file_, kSamples, flags, description);
    return open_samples(file_, {}, pack);
  }

  std::string bytes() const {
    std::ifstream in(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void replace(const std::string& bytes) const { std::ofstream(file_, std::ios::binary) << bytes; }

  ScratchDirectory directory_;
  std::filesystem::path file_ = directory_ / "x.samples";
};

TEST_F(PreparedSamples, HaveTheNextTokenAsLabelWhereItLiesInARun) {
  const auto set = opened();
  EXPECT_EQ(set->size(), 3);
  const ReadSample first = read_of(*set, 0);
  EXPECT_THAT(first.tokens, ElementsAre(10, 11, 12, 13));
  EXPECT_THAT(first.labels, ElementsAre(kNone, 12, kNone, 14));
  const ReadSample second = read_of(*set, 1);  // token 0 has no predecessor
  EXPECT_THAT(second.tokens, ElementsAre(20));
  EXPECT_THAT(second.labels, ElementsAre(21));
  EXPECT_TRUE(set->labels_follow());
}

TEST_F(PreparedSamples, HaveNoLabelsForOneToken) {
  const auto set = opened();
  const ReadSample third = read_of(*set, 2);
  EXPECT_THAT(third.tokens, ElementsAre(9));
  EXPECT_THAT(third.labels, ElementsAre(kNone));
}

TEST_F(PreparedSamples, MayHaveTheirLastTokenAsAnInput) {
  const auto set = opened(SampleFile::kLastIsInput);
  const ReadSample first = read_of(*set, 0);
  EXPECT_THAT(first.tokens, ElementsAre(10, 11, 12, 13, 14));
  EXPECT_THAT(first.labels, ElementsAre(kNone, 12, kNone, 14, kNone));
}

TEST_F(PreparedSamples, MayHaveLabelsBesideTheirTokens) {
  const auto set = opened(SampleFile::kLabelsAreInputs);
  EXPECT_FALSE(set->labels_follow());
  EXPECT_THAT(read_of(*set, 0).labels, ElementsAre(kNone, kNone, 12, kNone, 14));
}

TEST_F(PreparedSamples, TakeTheLengthOfTheirSetInAPack) {
  const std::string description = R"({"filled": 7})";
  EXPECT_EQ(opened(0, 0, description)->length(0), 4);
  const auto set = opened(0, 16, description);
  EXPECT_EQ(set->length(0), 7);
  EXPECT_THAT(read_of(*set, 0).tokens, ElementsAre(10, 11, 12, 13, 9, 9, 9));
  EXPECT_THAT(read_of(*set, 0).labels, ElementsAre(kNone, 12, kNone, 14, kNone, kNone, kNone));
  EXPECT_EQ(Rows(opened(0, 16, description), {Packer::thd, 16, {}}).size(), 2);  // packs of 14 and 7 tokens
}

// The file's vocabulary is 100, but the check uses the largest token of the samples, which is 30.
TEST_F(PreparedSamples, AreRefusedOnlyForATokenBeyondTheVocabulary) {
  write_samples(file_, kSamples);
  const auto refusal = [&](int64_t vocabulary, DataNotes& notes) {
    return tests::thrown_by([&] { open_samples(file_, {}, 0, vocabulary)->verify(notes); });
  };
  DataNotes notes;
  EXPECT_EQ(refusal(31, notes), "");
  EXPECT_EQ(notes.now.size(), 2u);
  DataNotes again{notes.now, {}};
  EXPECT_EQ(refusal(31, again), "");
  EXPECT_EQ(again.now, notes.now);
  EXPECT_EQ(refusal(30, again), "error[input] " + file_.string() +
                                    ": sample 3 has the token 30, but the model's vocabulary size is 30\n"
                                    "  hint: tokenize the texts with the model's own tokenizer");
  EXPECT_THAT(refusal(14, notes), HasSubstr("sample 1 has the token 14"));  // token 14 occurs only as a label
}

TEST_F(PreparedSamples, NameTheEmbeddingWhenTheModelsOwnTokenizerIsLarger) {
  write_samples(file_, kSamples);
  DataNotes notes;
  EXPECT_EQ(tests::thrown_by([&] { open_samples(file_, {}, 0, 30, true)->verify(notes); }),
            "error[input] " + file_.string() +
                ": sample 3 has the token 30, but the model's vocabulary size is 30\n"
                "  hint: the model's own tokenizer has 100 tokens, more than its embedding has rows. Resize "
                "the embedding (resize_token_embeddings() of transformers) and save the model again, or "
                "remove rows with this token");
}

TEST_F(PreparedSamples, AreFilledWithATokenOfTheModel) {
  write_samples(file_, {{{1}, {}}}, 0, "{}");
  EXPECT_THAT(read_of(*open_samples(file_, {}, 0, 10), 0).tokens, ElementsAre(9));
  EXPECT_THAT(read_of(*open_samples(file_, {}, 0, 9), 0).tokens, ElementsAre(0));
}

// Every changed byte causes an error or changes a token, which verify() detects.
TEST_F(PreparedSamples, AreRefusedWithAnyByteChanged) {
  opened();
  const std::string whole = bytes();
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    replace(changed);
    const std::string error = tests::thrown_by([&] {
      DataNotes notes;
      open_samples(file_, {}, 0)->verify(notes);
    });
    EXPECT_THAT(error, HasSubstr(file_.string())) << "byte " << at;
  }
}

TEST_F(PreparedSamples, AreRefusedCutAtAnyLength) {
  opened();
  const std::string whole = bytes();
  for (size_t length = 0; length < whole.size(); ++length) {
    replace(whole.substr(0, length));
    EXPECT_THAT(tests::thrown_by([&] { open_samples(file_, {}, 0); }), HasSubstr("x.samples")) << length;
  }
  replace(whole + '\0');
  EXPECT_THAT(tests::thrown_by([&] { open_samples(file_, {}, 0); }), HasSubstr("bytes after its end"));
}

TEST_F(PreparedSamples, AreNamedWhenUnfinishedOrOfAnotherVersion) {
  write_unsealed(file_, kSamples);
  EXPECT_THAT(tests::thrown_by([&] { open_samples(file_, {}, 0); }), HasSubstr("is not finished"));
  std::string whole = bytes();
  whole[8] = 2;
  replace(whole);
  EXPECT_THAT(tests::thrown_by([&] { open_samples(file_, {}, 0); }),
              HasSubstr("has version 2; this heddle reads version 1"));
}

TEST_F(PreparedSamples, AreNotSealedWithATokenOutsideTheVocabulary) {
  write_unsealed(file_, {{{10, 100}, {}}});
  EXPECT_THAT(tests::thrown_by([&] { seal_samples(file_); }),
              HasSubstr("has the token 100, but its vocabulary has 100 tokens"));
  write_unsealed(file_, {{{10, 11}, {{1, 3}}}});
  EXPECT_THAT(tests::thrown_by([&] { seal_samples(file_); }),
              HasSubstr("a run of sample 0 is not inside it"));
}

TEST_F(PreparedSamples, AreRefusedWhenEmpty) {
  write_samples(file_, {});
  EXPECT_THAT(tests::thrown_by([&] { open_samples(file_, {}, 0); }), HasSubstr("has no samples"));
}

// Expected: torch.randperm(22, generator=torch.Generator().manual_seed(0))
TEST(SampleOrder, MayBeThatOfPyTorchsSampler) {
  EXPECT_THAT(torch_permutation(22, 0),
              ElementsAre(10, 4, 15, 3, 11, 5, 9, 20, 19, 13, 2, 0, 18, 16, 7, 8, 6, 14, 17, 1, 12, 21));
  const SampleOrder order(22, Shuffle::torch, 0, 0), later(22, Shuffle::torch, 3, 4),
      same(22, Shuffle::torch, 0, 7);
  EXPECT_EQ(order[0], 10);
  EXPECT_EQ(order[21], 21);
  for (int64_t place = 0; place < 22; ++place)
    EXPECT_EQ(later[place], same[place]);  // seed + epoch seeds the permutation
}

}  // namespace
}  // namespace heddle
