// Megatron's sample index and blends, compared with Megatron-Core.
#include <gmock/gmock.h>

#include <fstream>
#include <numeric>
#include <sstream>

#include "heddle/config/node.h"
#include "lib/data/blend/blend_set.h"
#include "lib/data/blend/sample_index.h"
#include "tests/main/reference_table.h"
#include "tests/thrown.h"
#include "token_files.h"
#include "trainer/cli/plugins/plugin_tables.h"

namespace heddle::megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

const std::vector<int64_t> kLengthsA = {7, 5, 9, 3, 11, 6, 8, 4, 10, 7},
                           kLengthsB = {12, 9, 15, 7, 20, 5, 11, 8};
constexpr int64_t kSequence = 8;
constexpr uint32_t kSeed = 1234;

SampleIndex index_a(std::optional<int64_t> samples) {
  return index_samples(kLengthsA, 0, kSequence, samples, kSeed);
}

TEST(BlendIndex, EqualsMegatronsForOneEpoch) {
  const SampleIndex one = index_a(8);
  EXPECT_THAT(one.documents, ElementsAre(7, 2, 9, 1, 0, 8, 4, 5, 6, 3));
  EXPECT_THAT(one.shuffle, ElementsAre(7, 5, 6, 0, 4, 3, 2, 1));
}

TEST(BlendIndex, MixesALastEpochAloneWhereLittleOfItIsNeeded) {
  const SampleIndex two = index_a(12);
  EXPECT_THAT(two.documents, ElementsAre(7, 2, 9, 1, 0, 8, 4, 5, 6, 3, 7, 3, 5, 1, 4, 8, 0, 2, 6, 9));
  EXPECT_THAT(two.shuffle, ElementsAre(5, 1, 4, 3, 0, 2, 6, 7, 12, 15, 9, 8, 13, 11, 16, 14, 10));
}

TEST(BlendIndex, MixesEpochsTogetherWhereMostOfTheLastIsNeeded) {
  const SampleIndex three = index_a(24);
  EXPECT_THAT(three.documents, ElementsAreArray({7, 0, 4, 1, 8, 8, 3, 3, 4, 3, 2, 4, 0, 2, 7,
                                                 6, 8, 5, 6, 5, 1, 9, 7, 9, 0, 2, 1, 6, 9, 5}));
  EXPECT_THAT(three.shuffle, ElementsAreArray({8,  25, 18, 3, 13, 6,  5,  9,  0,  4, 16, 22, 15,
                                               20, 10, 23, 7, 14, 17, 21, 24, 11, 1, 12, 19, 2}));
}

TEST(BlendIndex, TakesTheDocumentsOfItsPart) {
  const auto parts = split_documents("6,2,2", 8, "where");
  EXPECT_EQ(parts[1].begin, 5);
  EXPECT_EQ(parts[1].end, 6);
  const SampleIndex part = index_samples(std::span(kLengthsB).subspan(5, 1), 5, kSequence, 8, kSeed);
  EXPECT_THAT(part.documents, ::testing::Each(5));
  EXPECT_THAT(part.shuffle, ElementsAre(5, 1, 3, 7, 0, 6, 2, 4));
  EXPECT_THAT(tests::thrown_by([] { split_documents("0, 0", 8, "run.yaml:3 dataset.split"); }),
              HasSubstr("error[config] run.yaml:3 dataset.split: no part of the split '0, 0' is above 0"));
}

TEST(Blend, GivesTheNextSampleToTheSetThatLagsMost) {
  const std::vector<int64_t> many = {100, 100};
  EXPECT_THAT(blend(std::vector<double>{0.3, 0.7}, many, 20),
              ElementsAreArray({1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 0, 1, 1, 0, 1, 1}));
  const std::vector<int64_t> few = {8, 10};
  const std::vector<double> shares = {8.0 / 18, 10.0 / 18};
  EXPECT_THAT(blend(shares, few, 12), ElementsAre(1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1));
  EXPECT_THAT(blend(shares, few, 18), ElementsAre(1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0, 1));
}

// Writes NAME.bin and NAME.idx with consecutive int32 tokens that start at `first`.
void write_megatron(const std::filesystem::path& name, const std::vector<int64_t>& lengths, int32_t first) {
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  std::vector<int32_t> tokens(static_cast<size_t>(total)), sizes(lengths.begin(), lengths.end());
  std::iota(tokens.begin(), tokens.end(), first);
  std::ofstream bin(name.string() + ".bin", std::ios::binary), idx(name.string() + ".idx", std::ios::binary);
  append_values(bin, tokens);
  idx.write("MMIDIDX\0\0", 9);
  append_values(idx, std::vector<uint64_t>{1});
  append_values(idx, std::vector<uint8_t>{4});
  append_values(idx, std::vector<uint64_t>{lengths.size(), lengths.size() + 1});
  append_values(idx, sizes);
  std::vector<int64_t> places{0};
  for (const int64_t length : lengths) places.push_back(places.back() + length * 4);
  places.pop_back();
  append_values(idx, places);
  std::vector<int64_t> documents(lengths.size() + 1);
  std::iota(documents.begin(), documents.end(), int64_t{0});
  append_values(idx, documents);
}

class BlendSetTest : public ::testing::Test {
 protected:
  BlendSetTest() {
    write_megatron(directory_ / "a", kLengthsA, 1000);
    write_megatron(directory_ / "b", kLengthsB, 2000);
  }

  std::unique_ptr<IDataset> opened(const std::string& keys, int64_t wanted, bool validation = false,
                                   const std::string& split = "null") {
    section_ = config::read_text("{seq_length: 8, split: " + split + ", " + keys + "}", "run.yaml");
    DataFacts facts;
    facts.samples_wanted = wanted;
    facts.validation = validation;
    facts.vocabulary = 5000;
    return blend_files().make(section_, facts);
  }
  // Returns a sample's tokens and its last label.
  std::vector<int64_t> row(const IDataset& set, int64_t sample) {
    std::vector<int64_t> tokens(8), labels(8);
    std::vector<int32_t> documents;
    set.read(sample, {tokens, labels, documents, 0});
    for (size_t i = 0; i + 1 < tokens.size(); ++i) EXPECT_EQ(labels[i], tokens[i + 1]);
    tokens.push_back(labels.back());
    return tokens;
  }
  std::string name(const std::string& of) const { return (directory_ / of).string(); }

  ScratchDirectory directory_;
  Node section_;
};

TEST_F(BlendSetTest, ReadsRowsOverTheEndsOfDocuments) {
  EXPECT_THAT(row(*opened("paths: " + name("a"), 8), 0),
              ElementsAre(1038, 1039, 1040, 1041, 1042, 1043, 1044, 1045, 1046));
  EXPECT_THAT(row(*opened("paths: " + name("a"), 28), 0),
              ElementsAre(1007, 1008, 1009, 1010, 1011, 1041, 1042, 1043, 1044));
  EXPECT_EQ(opened("paths: " + name("a"), 5)->size(), 5);
  EXPECT_EQ(opened("paths: " + name("a"), 0)->size(), 8);  // one epoch
}

TEST_F(BlendSetTest, TakesItsPartOfTheDocuments) {
  const std::vector<int64_t> row_of_one = {2063, 2064, 2065, 2066, 2067, 2063, 2064, 2065, 2066};
  for (const char* split : {"'6,2,2'", "\"0.6, 0.2, 0.2\"", "[6, 2, 2]"})
    EXPECT_THAT(row(*opened("paths: " + name("b"), 8, true, split), 0), ElementsAreArray(row_of_one))
        << split;
  EXPECT_THAT(tests::thrown_by([&] { opened("paths: " + name("b"), 8, true, "'1,0,0'"); }),
              HasSubstr("run.yaml:1 split: the split '1,0,0' gives this set none of the 8 documents"));
}

TEST_F(BlendSetTest, BlendsByWeights) {
  const auto set = opened("paths: [30, " + name("a") + ", 70, " + name("b") + "]", 20);
  EXPECT_EQ(set->size(), 20);
  EXPECT_THAT(row(*set, 0), ElementsAre(2068, 2069, 2070, 2071, 2072, 2073, 2074, 2075, 2076));
  EXPECT_TRUE(set->sequential());
  EXPECT_EQ(opened("paths: '" + name("*") + "'", 12)->size(), 12);
  EXPECT_EQ(opened("paths: '" + name("*") + "'", 100)->size(), 18);  // one epoch of each file
}

TEST_F(BlendSetTest, TakesPathsByPartOrOfAJsonFile) {
  const std::string map = "{train: " + name("a") + ", valid: " + name("b") + "}";
  EXPECT_GE(row(*opened("paths: " + map, 4, true), 0)[0], 2000);
  EXPECT_LT(row(*opened("paths: " + map, 4), 0)[0], 2000);
  std::ofstream(directory_ / "blend.json")
      << "[\"30\", \"" + name("a") + "\", \"70\", \"" + name("b") + "\"]";
  EXPECT_EQ(row(*opened("paths: " + name("blend.json"), 20), 0)[0], 2068);
}

TEST_F(BlendSetTest, IsRefusedWithItsLine) {
  const auto refusal = [&](const std::string& keys, int64_t wanted = 8) {
    return tests::thrown_by([&] { opened(keys, wanted); });
  };
  EXPECT_THAT(refusal("paths: " + name("c")),
              HasSubstr("run.yaml:1 paths: the file '" + name("c") + ".bin' does not exist"));
  EXPECT_THAT(refusal("paths: '" + name("x*") + "'"), HasSubstr("no file .bin or .idx matches"));
  EXPECT_THAT(refusal("paths: [30, " + name("a") + ", 70, " + name("b") + "]", 0),
              HasSubstr("Using client-specified weights requires client-specified size"));
  EXPECT_THAT(refusal("paths: [30, " + name("a") + ", " + name("b") + "]"),
              HasSubstr("run.yaml:1 paths[2]: expected a weight above 0 and a name after it"));
  EXPECT_THAT(refusal("paths: {test: " + name("a") + "}"), HasSubstr("paths has no entry for train"));
  EXPECT_THAT(refusal(""), HasSubstr("paths is missing"));
  std::filesystem::resize_file(directory_ / "a.idx", 40);
  EXPECT_THAT(refusal("paths: " + name("a")), HasSubstr("the index is truncated"));
}

TEST(BlendFields, EqualTheTableOfTheReference) {
  tests::expect_reference_table("data.md", "blend", cli::to_markdown({{"dataset", &blend_files()}}));
}

}  // namespace
}  // namespace heddle::megatron
