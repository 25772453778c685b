// Checks of a plugin's data set before a run.
#include <gmock/gmock.h>

#include <cstdlib>

#include "lib/run/preflight/preflight.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PluginDataset : public ::testing::Test {
 protected:
  ~PluginDataset() override { unsetenv("HEDDLE_FAULT"); }

  Preflight checked(const std::string& fault, const std::string& keys = "",
                    Machine machine = Machine::this_one) {
    setenv("HEDDLE_FAULT", fault.c_str(), 1);
    const std::string yaml =
        "step_scheduler: {global_batch_size: 1, max_steps: 1}\n"
        "model: {config: {model_type: llama, vocab_size: 256, hidden_size: 8, intermediate_size: 8, "
        "num_hidden_layers: 1, num_attention_heads: 1, max_position_embeddings: 64}}\n"
        "distributed: {strategy: single}\ndataset: {_target_: my.faulty" +
        keys + "}\n";
    PluginRegistry plugins({HEDDLE_BINARY_DIR "/plugins"});
    plugins.load(HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_faulty_dataset.so");
    return preflight(read_recipe(config::read_text(yaml, "run.yaml"), RecipeErrors::kept), plugins, 1,
                     machine);
  }
  std::string refusal(const std::string& fault, const std::string& keys = "") {
    return tests::thrown_by([&] { checked(fault, keys); });
  }
};

TEST_F(PluginDataset, GivesItsRowsToTheRun) {
  const Preflight run = checked("none");
  ASSERT_TRUE(run.dataset.has_value());
  EXPECT_EQ(run.dataset->size(), 40);
  EXPECT_EQ(run.dataset->length(), 8);
  EXPECT_EQ(run.shuffle, Shuffle::on);
  EXPECT_EQ(checked("none", ", seq_len: 12").dataset->length(), 12);
}

TEST_F(PluginDataset, CanDefineItsOrder) {
  EXPECT_EQ(checked("sequential").shuffle, Shuffle::off);
}

// Tokens that no sample contains are allowed: gemma-3's tokenizer has one token more than its models.
TEST_F(PluginDataset, WarnsOfALargerTokenizer) {
  EXPECT_THAT(checked("large_tokenizer").setup.warnings,
              ElementsAre("run.yaml:4 dataset: the tokenizer of the data, words, has a vocabulary of 257, "
                          "larger than the model's vocabulary of 256; a token outside the model's vocabulary "
                          "is an error before the first step"));
  EXPECT_THAT(checked("none").setup.warnings, ElementsAre());
}

TEST_F(PluginDataset, NamesThePluginWhenItBreaksARule) {
  EXPECT_THAT(refusal("throws"),
              HasSubstr("the plugin 'faulty_dataset' 1.0.0 threw while it made the dataset "
                        "'faulty': no disk"));
  EXPECT_THAT(refusal("empty"),
              HasSubstr("error[plugin_failed] run.yaml:4 dataset: the data set 'faulty' has no samples"));
  EXPECT_THAT(refusal("long"), HasSubstr("the data set 'faulty' has a sample of 9 tokens, and rows of 8"));
}

TEST_F(PluginDataset, WarnsOfMissingFilesForAnotherMachine) {
  EXPECT_THAT(refusal("no_file"), HasSubstr("error[input] run.yaml:4 dataset: no file matches 'a'\n"));
  const Preflight run = checked("no_file", "", Machine::another);
  EXPECT_FALSE(run.dataset.has_value());
  EXPECT_THAT(run.setup.warnings,
              ElementsAre("on this machine no file matches 'a': the data is not checked"));
}

}  // namespace
}  // namespace heddle
