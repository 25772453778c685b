// Words of recipes that say less than a person may think, and limits of samples.
#include <gmock/gmock.h>

#include <filesystem>

#include "flow/training_files.h"

namespace flow {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kMock = "{_target_: mock.MockIterableDataset, seq_len: 16, num_samples: 40";

TEST(RecipeWords, IgnoreRoutersWithoutExperts) {
  const TrainingFiles files;
  const Words backend = {"--model.backend", "{fake_balanced_gate: true, gate_precision: float32}"};
  const Outcome outcome = heddle(plus({"check", files.path("run.yaml")}, backend));
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  for (const char* key : {"fake_balanced_gate", "gate_precision"})
    EXPECT_THAT(outcome.error, HasSubstr("warning: --model.backend model.backend." + std::string(key) +
                                         " changes nothing: the model has no router that it could change"));
}

TEST(RecipeWords, AreShownOnce) {
  const TrainingFiles files;
  const std::string shown = heddle({"check", files.path("run.yaml")}).out;
  EXPECT_THAT(shown, HasSubstr("\nactivation checkpointing: false\n"));
  EXPECT_THAT(shown, Not(HasSubstr("activation_checkpointing: ")));
}

// The exact gelu, no scaled first values, and dropout of embeddings and of attention.
TEST(RecipeWords, MapBuildGpt2ModelToKeysOfTheFamily) {
  const TrainingFiles files;
  const auto write = [&](const std::string& more) {
    files.write("gpt2.yaml",
                "model: {_target_: nemo_automodel.components.models.gpt2.build_gpt2_model, n_layer: 1,\n"
                "        n_embd: 8, n_head: 2, vocab_size: 600, bos_token_id: 1" +
                    more + "}\ndataset: {file_pattern: " + files.path("train.bin") + ", seq_len: 16}\n" +
                    "optimizer: {lr: 1.0e-3}\n");
    return heddle({"check", files.path("gpt2.yaml"), "--elsewhere"});
  };
  const Outcome outcome = write(", n_ctx: 32");
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(outcome.error, "");
  const Outcome unknown = write(", n_heads: 2");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.error, HasSubstr("n_heads"));
}

// Of a set that has no such key itself.
TEST(Limits, HoldForSetsOfPlugins) {
  for (const char* key : {"limit_dataset_samples", "num_samples_limit"}) {
    const TrainingFiles files;
    const std::string set = kMock + ", " + key + ": ";
    const Words words = files.train("run", {"--dataset", set + "12}", "--validation_dataset", set + "3}",
                                            "--checkpoint.save_consolidated", "false"});
    const Outcome outcome = heddle(words);
    ASSERT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_THAT(outcome.out, HasSubstr("data    12 samples of 16 tokens"));
    EXPECT_THAT(column(files.path("run/training.jsonl"), "num_label_tokens"),
                ::testing::ElementsAre(8 * 15, 4 * 15));
    EXPECT_THAT(column(files.path("run/validation.jsonl"), "num_label_tokens"), ::testing::Each(3 * 15));
  }
}

TEST(MetricsOutputs, AreRefusedWhereAnotherFileIs) {
  const TrainingFiles files;
  const Outcome both = heddle(files.train("run", {"--tensorboard.dir", files.path("run/training.jsonl")}));
  EXPECT_EQ(both.status, 2);
  EXPECT_THAT(both.error,
              HasSubstr("is used for two outputs: the directory of event files, and the metrics of "));
  const Outcome named =
      heddle(files.train("run", {"--tensorboard.dir", files.path("both"), "--metrics", files.path("both")}));
  EXPECT_EQ(named.status, 2);
  EXPECT_THAT(named.error, HasSubstr("is used for two outputs: "));
  EXPECT_FALSE(std::filesystem::exists(files.path("run/training.jsonl")));
}

}  // namespace
}  // namespace flow
