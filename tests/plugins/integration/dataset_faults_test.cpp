// The kits of data sets refuse each fault with the rule that it violates, and pass the data sets of the
// build.
#include "plugins/integration/kit_faults.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;

constexpr const char *kMade = "created from its section", *kLengths = "length(), row_length()",
                     *kOrder = "depends only on the index", *kTwice = "two sets of the same section",
                     *kChange = "change if the samples change",
                     *kVocabulary = "tokens and labels are in the vocabulary",
                     *kLabels = "label j is token j + 1", *kDocuments = "begin_document()";

INSTANTIATE_TEST_SUITE_P(Datasets, RefusedFault,
                         ::testing::ValuesIn(faults_of(
                             "dataset", Tried::always,
                             {{"throws", kMade, "threw while it made the dataset 'faulty': no disk"},
                              {"null", kMade, "it gave a null pointer"},
                              {"no_maker", "the registry accepts", "the dataset 'faulty' has no maker"},
                              {"empty", kMade, "size() is 0"},
                              {"no_length", kLengths, "sample 0 has 0 tokens"},
                              {"long", kLengths, "sample 39 has 9 tokens, but row_length() is 8"},
                              {"differs", kTwice, "sample 0 differs in a second set of the same section"},
                              {"digest", kTwice, "digest() differs between two sets of the same section"},
                              {"digest_is_constant", kChange, "with seq_len: "},
                              {"digest_lacks_a_field", kChange, "with offset: "},
                              {"seed_changes_samples", kChange, "but uses_seed() is false"},
                              {"counts_reads", kOrder, "differs when samples are read in another order"},
                              {"shares", "from several threads", "differs when four threads read"},
                              {"outside", kVocabulary, "sample 0 has the token 131072"},
                              {"outside_label", kVocabulary, "sample 0 has the label 131072"},
                              {"unshifted", kLabels, "sample 0: label 2 is 2, but the next token is 3"},
                              {"skips_a_token", "writes every token", "does not write all tokens"},
                              {"counts_reads", "on any number of ranks", "has other samples on "},
                              {"no_labels", kLabels, "every label of 40 samples is ignored"},
                              {"documents", kDocuments, "a document begins at 8"},
                              {"secret_documents", kDocuments, "has_documents() is false"}})),
                         name_of_fault);

TEST(DatasetKits, PassASetWithoutAFault) {
  const kits::Report report = fault_report("dataset", "none");
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_TRUE(report.untrained().empty());
}

TEST(DatasetKits, CheckThatInputsListFilesOfFields) {
  kits::KitOptions options;
  options.fields = "{file: " __FILE__ "}";
  for (const char* fault : {"none", "no_inputs", "names_another_input"}) {
    const kits::Report report = fault_report("dataset", fault, options);
    EXPECT_EQ(report.passed(), std::string(fault) == "none") << report.text();
    if (!report.passed()) {
      EXPECT_THAT(report.text(), HasSubstr("but inputs() does not list it"));
    }
  }
}

TEST(DatasetKits, DoNotRunIfFilesAreMissing) {
  const kits::Report report = fault_report("dataset", "no_file");
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_THAT(report.untrained(), ::testing::ElementsAre("dataset 'faulty'"));
  EXPECT_THAT(report.text(),
              HasSubstr("it refuses these fields: no file matches 'a'; set other fields with --fields"));
}

TEST(DatasetKits, PassTheMockSets) {
  const kits::Report report = kits::check_plugin(HEDDLE_BINARY_DIR "/plugins/libheddle_mock.so");
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_TRUE(report.untrained().empty());
}

}  // namespace
}  // namespace heddle::tests
