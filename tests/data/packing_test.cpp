// Sequence packing, and rows of samples with unequal lengths.
#include "lib/data/packing.h"

#include <gmock/gmock.h>

#include <random>

#include "heddle/base/error.h"
#include "heddle/model/batch.h"
#include "lib/data/batches.h"
#include "lib/data/tokens/token_check.h"
#include "lib/data/tokens/token_dataset.h"
#include "lib/data/tokens/token_files.h"
#include "lib/run/preflight/open_data.h"
#include "tests/data/token_files.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Lists = std::vector<std::vector<int64_t>>;

Lists packs_of(const std::vector<int64_t>& lengths, const PackRules& rules) {
  const Packs packs = pack(lengths, rules);
  Lists out;
  for (int64_t i = 0; i < packs.size(); ++i) out.emplace_back(packs[i].begin(), packs[i].end());
  return out;
}

TEST(Packing, ThdTakesTheNextUntilOneDoesNotFit) {
  EXPECT_EQ(packs_of({3, 4, 2, 5}, {Packer::thd, 10, {}}), (Lists{{0, 1, 2}, {3}}));
  EXPECT_EQ(packs_of({3, 11, 7, 1, 9}, {Packer::thd, 10, {}}), (Lists{{0, 2}, {3, 4}}));
  EXPECT_EQ(packs_of({3, 11, 7, 1, 9}, {Packer::thd, 10, 1}), (Lists{{0, 2}}));
  EXPECT_EQ(packs_of({11, 12}, {Packer::thd, 10, {}}), Lists{});
}

TEST(Packing, NeatFillsTheEmptiestWithTheLongest) {
  // 7, 6 and 5 open one pack each. 3 joins 5, then 2 joins 6.
  EXPECT_EQ(packs_of({3, 7, 5, 2, 6}, {Packer::neat, 10, {}}), (Lists{{1}, {4, 3}, {2, 0}}));
  EXPECT_EQ(packs_of({3, 7, 5, 2, 6}, {Packer::neat, 10, 2}), (Lists{{1}, {4, 3}}));
  // 4 would fit into the fuller pack, but only the emptiest pack is tried. Equal lengths keep their order.
  EXPECT_EQ(packs_of({5, 5, 5, 11}, {Packer::neat, 10, {}}), (Lists{{0, 1}, {2}}));
}

TEST(Packing, HoldsEverySampleThatFitsOnce) {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<int64_t> lengths(1 + random() % 200);
    for (int64_t& one : lengths) one = 1 + random() % 70;
    for (const Packer packer : {Packer::thd, Packer::neat}) {
      const Lists packs = packs_of(lengths, {packer, 64, {}});
      EXPECT_EQ(packs, packs_of(lengths, {packer, 64, {}}));
      std::vector<int> seen(lengths.size());
      for (const auto& pack : packs) {
        int64_t sum = 0;
        for (const int64_t sample : pack) {
          ++seen[static_cast<size_t>(sample)];
          sum += lengths[static_cast<size_t>(sample)];
        }
        EXPECT_LE(sum, 64);
        EXPECT_GT(sum, 0);
      }
      for (size_t i = 0; i < lengths.size(); ++i) EXPECT_EQ(seen[i], lengths[i] <= 64 ? 1 : 0);
    }
  }
}

// Consecutive tokens 0, 1, 2, ... in files, split into samples of the given lengths.
class Samples : public ::testing::Test {
 protected:
  Rows dataset(const Lists& lengths, const PackRules& rules, int64_t row = 0, std::optional<int64_t> end = {},
               int64_t vocabulary = 1 << 16) {
    std::vector<TokenFile> files;
    uint16_t next = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      std::vector<uint16_t> tokens;
      for (const int64_t length : lengths[i])
        for (int64_t j = 0; j < length; ++j) tokens.push_back(next++);
      const auto file = scratch_ / ("part" + std::to_string(i) + ".bin");
      write_token_file<uint16_t>(file, {20240520, 1, static_cast<int32_t>(tokens.size())}, tokens);
      files.emplace_back(file, std::nullopt);
    }
    auto samples = std::make_shared<TokenDataset>(std::move(files), lengths, row, end);
    samples->expect(vocabulary);
    return Rows(std::move(samples), rules);
  }

  std::string error_of_lengths(const std::string& text) {
    std::ofstream(scratch_ / "lengths") << text;
    const auto file = scratch_ / "ten.bin";
    write_token_file<uint16_t>(file, {20240520, 1, 10}, std::vector<uint16_t>(10, 1));
    const TokenFile tokens(file, std::nullopt);
    std::string said = tests::thrown_by([&] { read_lengths(scratch_ / "lengths", tokens); });
    const std::string folder = (scratch_ / "").string();
    for (size_t at = 0; (at = said.find(folder)) != said.npos;) said.erase(at, folder.size());
    return said;
  }

  ScratchDirectory scratch_;
};

std::vector<int64_t> elements(const at::Tensor& x) {
  const at::Tensor whole = x.to(at::kLong).contiguous();
  return {whole.const_data_ptr<int64_t>(), whole.const_data_ptr<int64_t>() + whole.numel()};
}

Batch first_batch(const Rows& dataset, int64_t rows) {
  Batches batches(dataset, {rows, 1, 0}, 1 << 16);
  return batches.read(SampleOrder(dataset.size(), Shuffle::off, 0, 0), 0, std::min(rows, dataset.size()))[0];
}

TEST_F(Samples, HaveLengthsInAFileThatIsNotEmpty) {
  EXPECT_EQ(error_of_lengths(""),
            "error[input] lengths: is empty: it contains no sample length\n"
            "  hint: write on each line the number of tokens of one sample, in the order of the token file");
  EXPECT_EQ(
      error_of_lengths(std::string(2'000'000, 'x')),
      "error[input] lengths:1: a sample's length must be an integer from 2 to 2147483648, got '" +
          std::string(200, 'x') +
          "... (2000000 bytes)'\n"
          "  hint: write on each line the number of tokens of one sample, in the order of the token file");
}

TEST_F(Samples, ArePackedWithTheirOwnLabels) {
  const Rows packed = dataset({{4, 3}, {5}}, {Packer::thd, 6, {}});
  EXPECT_EQ(packed.size(), 2);
  const Batch batch = first_batch(packed, 3);  // the third row is empty
  constexpr int64_t kNone = Batch::kIgnore;
  EXPECT_THAT(elements(batch.tokens), ElementsAre(0, 1, 2, 4, 5, 0, 7, 8, 9, 10, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(elements(batch.labels), ElementsAre(1, 2, 3, 5, 6, kNone, 8, 9, 10, 11, kNone, kNone, kNone,
                                                  kNone, kNone, kNone, kNone, kNone));
  EXPECT_THAT(elements(batch.documents), ElementsAre(0, 3, 5, 6, 10, 12, 18));
  EXPECT_THAT(elements(positions_of(batch)),
              ElementsAre(0, 1, 2, 0, 1, 0, 0, 1, 2, 3, 0, 1, 0, 1, 2, 3, 4, 5));
  check_documents(batch);
  EXPECT_THAT(elements(batch.padding.to(at::kLong)),
              ElementsAre(0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1));
}

TEST_F(Samples, AreRowsOfTheirOwnWithoutPacking) {
  const Rows alone = dataset({{4, 3}}, {}, 5);
  EXPECT_EQ(alone.size(), 2);
  const Batch batch = first_batch(alone, 2);
  EXPECT_THAT(elements(batch.tokens), ElementsAre(0, 1, 2, 0, 0, 4, 5, 0, 0, 0));
  EXPECT_THAT(elements(batch.documents), ElementsAre(0, 3, 5, 7, 10));
}

TEST_F(Samples, EndDocumentsAtTheirTokenToo) {
  const Batch batch = first_batch(dataset({{4, 3}}, {Packer::thd, 5, {}}, 0, 1), 1);
  EXPECT_THAT(elements(batch.documents), ElementsAre(0, 2, 3, 5));
}

TEST_F(Samples, KnowWhatWasLeftOut) {
  const Rows rows = dataset({{4, 9, 3}}, {Packer::neat, 6, {}});
  ASSERT_NE(rows.packing(), nullptr);
  EXPECT_EQ(rows.packing()->left_out, 1);
  EXPECT_EQ(rows.packing()->longest, 8);
  EXPECT_EQ(rows.longest(), 3);
  EXPECT_EQ(rows.packing()->text, "neat packs of 6 tokens");
  EXPECT_NE(rows.samples().settings(), dataset({{4, 3, 9}}, {Packer::neat, 6, {}}).samples().settings());
}

TEST_F(Samples, AreCheckedAgainstTheVocabularyWhereRowsHaveThem) {
  const auto refusal = [&](const Lists& lengths, const PackRules& rules, int64_t vocabulary) {
    const Rows packed = dataset(lengths, rules, 0, {}, vocabulary);
    return tests::thrown_by([&] { check_tokens(std::vector<const Rows*>{&packed}, vocabulary, ""); });
  };
  const PackRules six{Packer::neat, 6, {}};
  EXPECT_EQ(refusal({{4, 3, 9}}, six, 7), "");  // tokens from 7 on belong to a sample that is too long
  EXPECT_THAT(refusal({{4, 3, 9}}, six, 6), HasSubstr("token 6 is 6; the model's vocabulary has 6 tokens"));
  EXPECT_THAT(refusal({{4, 9}, {3}}, six, 7), HasSubstr("part1.bin: token 0 is 13;"));
  EXPECT_EQ(refusal({{4, 3}}, {Packer::thd, 3, 1}, 4), "");  // max_packs is 1, so the second pack is dropped
  EXPECT_THAT(refusal({{4, 3}}, {Packer::thd, 3, 2}, 4), HasSubstr("token 4 is 4;"));
}

TEST_F(Samples, AreRefusedAboveTheModelsPositions) {
  const Rows packed = dataset({{4, 3, 5}}, {Packer::thd, 6, {}});
  std::ofstream(scratch_ / "lengths") << "4\n3\n5\n";
  const Node keys = config::read_text("dataset:\n  file_pattern: " + (scratch_ / "part0.bin").string() +
                                          "\n  lengths: " + (scratch_ / "lengths").string() + "\n",
                                      "run.yaml");
  DataFacts facts;
  facts.pack_size = 6;
  const auto opened = [&] { (void)token_files().make(*keys.find("dataset"), facts); };
  EXPECT_EQ(tests::thrown_by(opened), "");
  DatasetSection section;
  section.section = *keys.find("dataset");
  PackedSection words;
  words.rules.size = 6;
  ModelFacts model;
  const auto checked = [&] { check_rows(packed, section, words, model); };
  model.vocabulary = 1 << 16;
  model.max_positions = 4;
  EXPECT_EQ(tests::thrown_by(checked), "");
  model.max_positions = 3;
  EXPECT_EQ(
      tests::thrown_by(checked),
      "error[config] run.yaml:3 dataset.lengths: the longest sample has 4 inputs, more than the model's 3 "
      "positions\n  hint: decrease packed_sequence.packed_sequence_size, which discards longer samples, "
      "or increase the model's max_position_embeddings");
}

TEST_F(Samples, AreReadFromLinesOfLengths) {
  EXPECT_EQ(error_of_lengths("4\n6\n"), "");
  EXPECT_EQ(error_of_lengths("4\r\n6"), "");
  const std::string hint =
      "\n  hint: write on each line the number of tokens of one sample, in the order of the token file";
  EXPECT_EQ(
      error_of_lengths("4\nsix\n"),
      "error[input] lengths:2: a sample's length must be an integer from 2 to 2147483648, got 'six'" + hint);
  for (const char* wrong : {"1", "-4", "", "4 6", "99999999999999999999"})
    EXPECT_NE(error_of_lengths("4\n" + std::string(wrong) + "\n").find("got '" + std::string(wrong) + "'"),
              std::string::npos);
  EXPECT_EQ(error_of_lengths("4\n5\n"),
            "error[input] lengths: the lengths of 2 samples add up to 9 tokens, but ten.bin has 10" + hint);
}

}  // namespace
}  // namespace heddle
