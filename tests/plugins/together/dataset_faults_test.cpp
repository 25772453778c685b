// The kits of data sets refuse each fault by the sentence that it breaks, and pass the sets of the build.
#include "plugins/kit_faults.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;

class FaultyDataset : public ::testing::TestWithParam<KitFault> {};

TEST_P(FaultyDataset, IsRefusedByTheKitOfTheSentence) {
  expect_refused(fault_report("dataset", GetParam().fault), GetParam());
}

constexpr const char *kMade = "made from its section", *kLengths = "length(), row_length()",
                     *kOrder = "a function of the index alone", *kTwice = "two sets of one section",
                     *kVocabulary = "tokens and labels of the vocabulary",
                     *kLabels = "label j is token j + 1", *kDocuments = "begin_document()";

INSTANTIATE_TEST_SUITE_P(
    Faults, FaultyDataset,
    ::testing::Values(KitFault{"throws", kMade, "threw while it made the dataset 'faulty': no disk"},
                      KitFault{"null", kMade, "it gave a null pointer"},
                      KitFault{"no_maker", "the registry accepts", "the dataset 'faulty' has no maker"},
                      KitFault{"empty", kMade, "size() is 0"},
                      KitFault{"no_length", kLengths, "sample 0 has 0 tokens"},
                      KitFault{"long", kLengths, "sample 39 has 9 tokens, and row_length() is 8"},
                      KitFault{"differs", kTwice, "sample 0 differs in a second set of the same section"},
                      KitFault{"digest", kTwice, "digest() of two sets of one section differs"},
                      KitFault{"counts_reads", kOrder, "differs when samples are read in another order"},
                      KitFault{"shares", "from several threads", "differs when four threads read"},
                      KitFault{"one_buffer", "from several threads", "differs when four threads read"},
                      KitFault{"outside", kVocabulary, "sample 0 has the token 131072"},
                      KitFault{"outside_label", kVocabulary, "sample 0 has the label 131072"},
                      KitFault{"unshifted", kLabels, "sample 0: label 2 is 2, and the next token 3"},
                      KitFault{"no_labels", kLabels, "no label of 40 samples counts"},
                      KitFault{"documents", kDocuments, "a document begins at 8"},
                      KitFault{"secret_documents", kDocuments, "has_documents() is false"}),
    [](const auto& info) { return info.param.fault; });

TEST(DatasetKits, PassASetWithoutAFault) {
  const kits::Report report = fault_report("dataset", "none");
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_TRUE(report.untrained().empty());
}

TEST(DatasetKits, DoNotRunWhereFilesAreMissing) {
  const kits::Report report = fault_report("dataset", "no_file");
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_THAT(report.untrained(), ::testing::ElementsAre("dataset 'faulty'"));
  EXPECT_THAT(report.text(),
              HasSubstr("it refuses these fields: no file matches 'a'; --fields gives others"));
}

TEST(DatasetKits, PassTheMockSets) {
  const kits::Report report = kits::check_plugin(HEDDLE_BINARY_DIR "/plugins/libheddle_mock.so");
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_TRUE(report.untrained().empty());
}

}  // namespace
}  // namespace heddle::tests
