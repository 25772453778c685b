// The kits of data sets refuse each fault by the sentence that it breaks, and pass the sets of the build.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "heddle/testing/conformance.h"

namespace heddle::tests {

using namespace kits;
using kits::Check;
namespace {

using ::testing::HasSubstr;

Report dataset_report(const std::string& fault) {
  setenv("HEDDLE_FAULT", fault.c_str(), 1);
  const Report report = check_plugin(HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_faulty_dataset.so");
  unsetenv("HEDDLE_FAULT");
  return report;
}

struct DatasetFault {
  std::string fault, sentence, detail;
};

class FaultyDataset : public ::testing::TestWithParam<DatasetFault> {};

TEST_P(FaultyDataset, IsRefusedByTheKitOfTheSentence) {
  const Report report = dataset_report(GetParam().fault);
  EXPECT_FALSE(report.passed());
  for (const Check& check : report.checks)
    if (check.rule.find(GetParam().sentence) != std::string::npos) {
      EXPECT_FALSE(check.passed) << report.text();
      EXPECT_THAT(check.detail, HasSubstr(GetParam().detail));
      return;
    }
  FAIL() << "no such kit in\n" << report.text();
}

constexpr const char *kMade = "made from its section", *kLengths = "length(), row_length()",
                     *kOrder = "a function of the index alone", *kTwice = "two sets of one section",
                     *kVocabulary = "tokens and labels of the vocabulary",
                     *kLabels = "label j is token j + 1", *kDocuments = "begin_document()";

INSTANTIATE_TEST_SUITE_P(
    Faults, FaultyDataset,
    ::testing::Values(DatasetFault{"throws", kMade, "threw while it made the dataset 'faulty': no disk"},
                      DatasetFault{"null", kMade, "it gave a null pointer"},
                      DatasetFault{"no_maker", "the registry accepts", "the dataset 'faulty' has no maker"},
                      DatasetFault{"empty", kMade, "size() is 0"},
                      DatasetFault{"no_length", kLengths, "sample 0 has 0 tokens"},
                      DatasetFault{"long", kLengths, "sample 39 has 9 tokens, and row_length() is 8"},
                      DatasetFault{"differs", kTwice, "sample 0 differs in a second set of the same section"},
                      DatasetFault{"digest", kTwice, "digest() of two sets of one section differs"},
                      DatasetFault{"counts_reads", kOrder, "differs when samples are read in another order"},
                      DatasetFault{"shares", "from several threads", "differs when four threads read"},
                      DatasetFault{"outside", kVocabulary, "sample 0 has the token 131072"},
                      DatasetFault{"outside_label", kVocabulary, "sample 0 has the label 131072"},
                      DatasetFault{"unshifted", kLabels, "sample 0: label 2 is 2, and the next token 3"},
                      DatasetFault{"no_labels", kLabels, "no label of 40 samples counts"},
                      DatasetFault{"documents", kDocuments, "a document begins at 8"},
                      DatasetFault{"secret_documents", kDocuments, "has_documents() is false"}),
    [](const auto& info) { return info.param.fault; });

TEST(DatasetKits, PassASetWithoutAFault) {
  const Report report = dataset_report("none");
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_TRUE(report.untrained().empty());
}

TEST(DatasetKits, DoNotRunWhereFilesAreMissing) {
  const Report report = dataset_report("no_file");
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_THAT(report.untrained(), ::testing::ElementsAre("dataset 'faulty'"));
  EXPECT_THAT(report.text(),
              HasSubstr("it refuses these fields: no file matches 'a'; --fields gives others"));
}

TEST(DatasetKits, PassTheMockSets) {
  const Report report = check_plugin(HEDDLE_BINARY_DIR "/plugins/libheddle_mock.so");
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_TRUE(report.untrained().empty());
}

}  // namespace
}  // namespace heddle::tests
