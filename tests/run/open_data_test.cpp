// Files of a data set, and messages about its patterns.
#include "lib/run/preflight/open_data.h"

#include <gmock/gmock.h>

#include "checkpoint/folder.h"
#include "lib/data/samples/sample_set.h"
#include "lib/run/preflight/preflight.h"
#include "tests/data/sample_files.h"
#include "tests/data/token_files.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::error_of;
using tests::Folder;

class DataFiles : public ::testing::Test {
 protected:
  DataFiles() {
    write_token_file<uint16_t>(folder_ / "train.bin", {20240520, 1, 100}, std::vector<uint16_t>(100, 1));
    folder_.write("lengths", "50\n50\n");
  }

  // Returns what `heddle train` or `heddle check` reports for a section, on this machine or another.
  std::string refusal(const std::string& dataset, Machine machine = Machine::this_one) {
    std::string yaml =
        "step_scheduler: {global_batch_size: 1, max_steps: 1}\n"
        "model: {config: {model_type: llama, vocab_size: 256, hidden_size: 8, intermediate_size: 8, "
        "num_hidden_layers: 1, num_attention_heads: 1, max_position_embeddings: 64}}\n"
        "distributed: {strategy: single}\ndataset: " +
        dataset + "\n";
    for (size_t at; (at = yaml.find("AT/")) != yaml.npos;) yaml.replace(at, 2, folder_.path().string());
    PluginRegistry plugins({HEDDLE_BINARY_DIR "/plugins"});
    return error_of(folder_, [&] {
      warnings_ =
          preflight(read_recipe(config::read_text(yaml, "run.yaml"), RecipeErrors::kept), plugins, 1, machine)
              .setup.warnings;
      for (std::string& warning : warnings_)
        for (size_t at; (at = warning.find(folder_.path().string())) != warning.npos;)
          warning.replace(at, folder_.path().string().size(), "AT");
    });
  }

  Folder folder_;
  std::vector<std::string> warnings_;
};

TEST_F(DataFiles, AreFoundForEachEntryOfAList) {
  EXPECT_THAT(refusal("{file_pattern: [AT/train.bin, AT/nofile.bin], seq_len: 8}"),
              HasSubstr("error[input] run.yaml:4 dataset.file_pattern: no file matches 'FOLDER/nofile.bin'\n"
                        "  hint: paths are relative to "));
  EXPECT_THAT(refusal("{file_pattern: AT/train.bin, lengths: [AT/lengths, AT/none*], seq_len: 64}"),
              HasSubstr("error[input] run.yaml:4 dataset.lengths: no file matches 'FOLDER/none*'\n"));
  EXPECT_EQ(refusal("{file_pattern: [AT/train.bin, AT/no.bin], seq_len: 8}", Machine::another), "no error");
  EXPECT_THAT(warnings_, ElementsAre("on this machine no file matches 'AT/no.bin': the data is not checked"));
}

TEST_F(DataFiles, AreReadOnceWithAWarningWhenNamedTwice) {
  const std::string rest = " named more than once; each file is read once";
  for (const auto& [list, named] : {std::pair{"AT/train.bin, AT/train.bin", "AT/train.bin is"},
                                    {"AT/train.bin, AT/./train.bin", "AT/./train.bin is"},
                                    {"AT/*.bin, AT/train.bin", "AT/train.bin is"},
                                    {"AT/*.bin, AT/train.bin, AT/t*.bin", "AT/train.bin and 1 more are"}}) {
    EXPECT_EQ(refusal("{file_pattern: [" + std::string(list) + "], seq_len: 8}"), "no error");
    EXPECT_THAT(warnings_, ElementsAre("run.yaml:4 dataset.file_pattern: " + (named + rest)));
  }
  EXPECT_EQ(refusal("{file_pattern: AT/train.bin, lengths: [AT/lengths, AT/./lengths], seq_len: 64}"),
            "no error");
  EXPECT_THAT(warnings_, ElementsAre("run.yaml:4 dataset.lengths: AT/./lengths is" + rest));
  EXPECT_EQ(refusal("{file_pattern: AT/train.bin, seq_len: 8}"), "no error");
  EXPECT_THAT(warnings_, ElementsAre());
}

TEST_F(DataFiles, AreReportedWhenEmpty) {
  folder_.write("empty.bin", "");
  folder_.write("empty", "");
  EXPECT_EQ(refusal("{file_pattern: AT/empty.bin, seq_len: 8}"),
            "error[input] FOLDER/empty.bin: is empty: it contains no token\n"
            "  hint: make a token file from texts with heddle data");
  EXPECT_THAT(refusal("{file_pattern: AT/train.bin, lengths: AT/empty, seq_len: 64}"),
              HasSubstr("error[input] FOLDER/empty: is empty: it contains no sample length\n"));
  write_token_file<uint16_t>(folder_ / "none.bin", {20240520, 1, 0}, {});
  EXPECT_THAT(refusal("{file_pattern: AT/none.bin, lengths: AT/empty, seq_len: 64}"),
              HasSubstr("error[input] FOLDER/empty: is empty: it contains no sample length\n"));
}

// Prepared samples: a question without labels and an answer with labels.
std::string untrained_end_of(const std::vector<TestSample>& samples, std::vector<int64_t> stops) {
  const Folder folder;
  write_samples(folder / "texts.samples", samples);
  DatasetSection section;
  section.where = "run.yaml:5 dataset";
  return untrained_end_text(Rows(open_samples(folder / "texts.samples", {}, 0)), section, std::move(stops));
}

TEST(UntrainedEnd, IsWarnedOfWhenNoLabelIsAnEndToken) {
  const std::vector<TestSample> samples = {{{1, 7, 3, 4}, {{2, 4}}}, {{1, 5, 7, 6}, {{3, 4}}}};
  EXPECT_EQ(untrained_end_of(samples, {7}),
            "run.yaml:5 dataset: none of the labels of the 2 samples is the end token 7, so the model does "
            "not learn "
            "to end an answer; set add_eos_token: true in dataset.tokenizer, or use a chat template that "
            "ends each answer with the end token");
  EXPECT_EQ(untrained_end_of(samples, {8, 9}), untrained_end_of(samples, {8}));
}

TEST(UntrainedEnd, IsNotWarnedOfWhenALabelIsOneOrNoEndTokenIsKnown) {
  const std::vector<TestSample> samples = {{{1, 7, 3, 4}, {{2, 4}}}, {{1, 5, 6, 7}, {{2, 4}}}};
  EXPECT_EQ(untrained_end_of(samples, {7}), "");
  EXPECT_EQ(untrained_end_of(samples, {8, 4}), "");
  EXPECT_EQ(untrained_end_of(samples, {}), "");
  EXPECT_EQ(untrained_end_of({{{1, 2, 3}, {}}}, {7}),
            "");  // samples without labels have another warning
}

// Only the first million tokens of a large set are read.
TEST(UntrainedEnd, ReadsTheFirstSamplesOfALargeSet) {
  std::vector<TestSample> samples(40, {std::vector<uint16_t>(60000, 5), {{1, 60000}}});
  samples.back().tokens.back() = 7;
  EXPECT_THAT(untrained_end_of(samples, {7}),
              HasSubstr("none of the labels of the first 18 samples is the end token 7"));
}

}  // namespace
}  // namespace heddle
