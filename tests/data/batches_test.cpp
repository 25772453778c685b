// Order of samples, and their split into ranks and microbatches.
#include <gmock/gmock.h>

#include <numeric>
#include <set>

#include "heddle/base/error.h"
#include "lib/data/batches.h"
#include "lib/data/tokens/token_dataset.h"
#include "tests/data/token_files.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

std::vector<int64_t> places_of(const SampleOrder& order) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < order.size(); ++i) out.push_back(order[i]);
  return out;
}

TEST(SampleOrder, IsAPermutationOfEverySize) {
  for (const int64_t size : {1, 2, 3, 4, 5, 16, 17, 63, 1000}) {
    std::vector<int64_t> sorted = places_of(SampleOrder(size, Shuffle::on, 42, 0));
    std::sort(sorted.begin(), sorted.end());
    std::vector<int64_t> all(size);
    std::iota(all.begin(), all.end(), int64_t{0});
    EXPECT_EQ(sorted, all) << size;
  }
}

TEST(SampleOrder, DependsOnTheSeedAndTheEpochAlone) {
  const auto one = places_of(SampleOrder(1000, Shuffle::on, 42, 0));
  EXPECT_EQ(one, places_of(SampleOrder(1000, Shuffle::on, 42, 0)));
  EXPECT_NE(one, places_of(SampleOrder(1000, Shuffle::on, 42, 1)));
  EXPECT_NE(one, places_of(SampleOrder(1000, Shuffle::on, 43, 0)));
}

TEST(SampleOrder, StaysTheSameFromVersionToVersion) {
  EXPECT_THAT(places_of(SampleOrder(8, Shuffle::on, 7, 2)), ElementsAre(2, 6, 3, 1, 7, 4, 0, 5));
}

TEST(SampleOrder, IsTheFilesWithShufflingOff) {
  EXPECT_THAT(places_of(SampleOrder(4, Shuffle::off, 42, 3)), ElementsAre(0, 1, 2, 3));
}

// Returns rows over the tokens 0, 1, 2, ..., split into files of the given sizes.
Rows counting(const ScratchDirectory& scratch, std::vector<int> sizes, int64_t length,
              std::optional<int64_t> document_end = {}, int64_t vocabulary = 1 << 16) {
  std::vector<TokenFile> files;
  uint16_t next = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    std::vector<uint16_t> tokens(sizes[i]);
    std::iota(tokens.begin(), tokens.end(), next);
    next = static_cast<uint16_t>(next + sizes[i]);
    const auto file = scratch / ("part" + std::to_string(i) + ".bin");
    write_token_file<uint16_t>(file, {20240520, 1, sizes[i]}, tokens);
    files.emplace_back(file, std::nullopt);
  }
  auto dataset = std::make_shared<TokenDataset>(std::move(files), length, document_end);
  dataset->expect(vocabulary);
  return Rows(std::move(dataset));
}

// Returns a row's input tokens and its last label.
std::vector<int64_t> sample_of(const Rows& dataset, int64_t row) {
  const auto length = static_cast<size_t>(dataset.length());
  std::vector<int64_t> tokens(length), labels(length);
  std::vector<int32_t> documents;
  dataset.read(row, 1 << 16, {tokens, labels, documents});
  tokens.push_back(labels.back());
  return tokens;
}

TEST(TokenDataset, CutsSamplesThatShareOneToken) {
  ScratchDirectory scratch;
  const Rows dataset = counting(scratch, {10}, 3);
  EXPECT_EQ(dataset.size(), 3);
  EXPECT_THAT(sample_of(dataset, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(sample_of(dataset, 2), ElementsAre(6, 7, 8, 9));
}

TEST(TokenDataset, PutsFilesOneAfterTheOther) {
  ScratchDirectory scratch;
  const Rows dataset = counting(scratch, {5, 3, 9}, 3);  // the files hold 1, 0 and 2 samples
  EXPECT_EQ(dataset.size(), 3);
  EXPECT_THAT(sample_of(dataset, 1), ElementsAre(8, 9, 10, 11));
}

TEST(TokenDataset, RefusesFilesWithoutOneSample) {
  ScratchDirectory scratch;
  EXPECT_THAT(tests::thrown_by([&] { counting(scratch, {3}, 3); }),
              ::testing::AllOf(HasSubstr("error[input]"),
                               HasSubstr("the longest file has 3 tokens; one sample of seq_len 3 needs 4")));
}

TEST(TokenDataset, RefusesTokensOutsideTheVocabulary) {
  ScratchDirectory scratch;
  const Rows dataset = counting(scratch, {10}, 3, {}, 5);
  EXPECT_THAT(tests::thrown_by([&] { sample_of(dataset, 1); }),
              ::testing::AllOf(HasSubstr("error[input]"),
                               HasSubstr("token 5 is 5; the model's vocabulary has 5 tokens")));
}

TEST(MatchingFiles, AreSortedAndStandOnce) {
  ScratchDirectory scratch;
  for (const char* name : {"b.bin", "a.bin", "c.txt"}) std::ofstream(scratch / name) << "x";
  const std::vector<std::string> patterns = {(scratch / "*.bin").string(), (scratch / "a*").string()};
  const MatchingFiles found = matching_files(patterns);
  EXPECT_THAT(found.files, ElementsAre(scratch / "a.bin", scratch / "b.bin"));
  EXPECT_THAT(found.repeated, ElementsAre(scratch / "a.bin"));
  EXPECT_THAT(found.lacking, ElementsAre());
}

TEST(MatchingFiles, AreReadOnceUnderAnyNameAndEachPatternMatches) {
  ScratchDirectory scratch;
  for (const char* name : {"b.bin", "a.bin"}) std::ofstream(scratch / name) << "x";
  std::filesystem::create_symlink("a.bin", scratch / "link.bin");
  const std::string folder = (scratch / "").string();
  const std::vector<std::string> patterns = {folder + "a.bin",    folder + "./a.bin", folder + "none*.bin",
                                             folder + "link.bin", folder + "b.bin",   folder + "b.bin"};
  const MatchingFiles found = matching_files(patterns);
  EXPECT_THAT(found.files, ElementsAre(folder + "a.bin", folder + "b.bin"));
  EXPECT_THAT(found.repeated, ElementsAre(folder + "./a.bin", folder + "link.bin", folder + "b.bin"));
  EXPECT_THAT(found.lacking, ElementsAre(folder + "none*.bin"));
}

// Returns the first token of each row that one rank reads in a step, or -1 for a row without labels.
std::vector<int64_t> rows_of(const Rows& dataset, BatchSplit split, int64_t begin, int64_t end) {
  Batches batches(dataset, split, 1 << 16);
  std::vector<int64_t> rows;
  for (const Batch& batch : batches.read(SampleOrder(dataset.size(), Shuffle::off, 0, 0), begin, end))
    for (int64_t row = 0; row < split.local_batch; ++row) {
      const int64_t at = row * dataset.length();
      const bool counts = batch.labels.const_data_ptr<int64_t>()[at] != Batch::kIgnore;
      rows.push_back(counts ? batch.tokens.const_data_ptr<int64_t>()[at] : -1);
    }
  return rows;
}

TEST(Batches, GiveEveryRankItsPartOfEachRound) {
  ScratchDirectory scratch;
  const Rows dataset = counting(scratch, {100}, 1);
  EXPECT_THAT(rows_of(dataset, {2, 2, 0}, 8, 16), ElementsAre(8, 9, 12, 13));
  EXPECT_THAT(rows_of(dataset, {2, 2, 1}, 8, 16), ElementsAre(10, 11, 14, 15));
}

TEST(Batches, FillTheLastRoundWithRowsThatCountNothing) {
  ScratchDirectory scratch;
  const Rows dataset = counting(scratch, {100}, 1);
  EXPECT_THAT(rows_of(dataset, {2, 2, 0}, 0, 5), ElementsAre(0, 1, 4, -1));
  EXPECT_THAT(rows_of(dataset, {2, 2, 1}, 0, 5), ElementsAre(2, 3, -1, -1));
}

TEST(Batches, TakeTheSameSamplesOnAnyNumberOfRanks) {
  ScratchDirectory scratch;
  const Rows dataset = counting(scratch, {100}, 1);
  const std::vector<int64_t> alone = rows_of(dataset, {1, 1, 0}, 12, 24);
  for (const int64_t ranks : {2, 3, 4}) {
    std::vector<int64_t> together;
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (const int64_t row : rows_of(dataset, {1, ranks, rank}, 12, 24)) together.push_back(row);
    EXPECT_THAT(together, UnorderedElementsAreArray(alone)) << ranks;
  }
}

TEST(Batches, LabelsAreTheTokensOneFurther) {
  ScratchDirectory scratch;
  const Rows dataset = counting(scratch, {100}, 3);
  Batches batches(dataset, {1, 1, 0}, 1 << 16);
  const Batch batch = batches.read(SampleOrder(dataset.size(), Shuffle::off, 0, 0), 2, 3)[0];
  EXPECT_EQ(batch.tokens.sizes(), (std::vector<int64_t>{1, 3}));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(batch.tokens.const_data_ptr<int64_t>()[i], 6 + i);
    EXPECT_EQ(batch.labels.const_data_ptr<int64_t>()[i], 7 + i);
  }
}

TEST(Batches, SayTheStepThatTheyBelongTo) {
  ScratchDirectory scratch;
  const Rows dataset = counting(scratch, {100}, 3);
  Batches batches(dataset, {1, 1, 0}, 1 << 16);
  const SampleOrder order(dataset.size(), Shuffle::off, 0, 0);
  for (const int64_t step : {5, 6})
    for (const Batch& batch : batches.read(order, 0, 3, {.step = step})) EXPECT_EQ(batch.step, step);
}

TEST(Batches, DocumentsEndWithTheirToken) {
  ScratchDirectory scratch;
  const Rows dataset = counting(scratch, {100}, 5, 12), files = counting(scratch, {100}, 5);
  Batches batches(dataset, {2, 1, 0}, 1 << 16);
  const Batch batch = batches.read(SampleOrder(dataset.size(), Shuffle::off, 0, 0), 2, 4)[0];
  const int32_t* const offsets = batch.documents.const_data_ptr<int32_t>();  // tokens 10 to 19
  EXPECT_THAT(std::vector<int32_t>(offsets, offsets + batch.documents.numel()), ElementsAre(0, 3, 5, 10));
  Batches whole(files, {2, 1, 0}, 1 << 16);
  EXPECT_FALSE(whole.read(SampleOrder(files.size(), Shuffle::off, 0, 0), 2, 4)[0].documents.defined());
}

}  // namespace
}  // namespace heddle
