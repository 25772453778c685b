// Settings of recipes that have less effect than expected, and limits of samples.
#include <gmock/gmock.h>

#include <filesystem>

#include "flow/training_files.h"

namespace flow {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kMock = "{_target_: mock.MockIterableDataset, seq_len: 16, num_samples: 40";

TEST(RecipeWords, AreShownOnce) {
  const TrainingFiles files;
  const std::string shown = heddle({"check", files.path("run.yaml")}).out;
  EXPECT_THAT(shown, HasSubstr("\nactivation checkpointing: false\n"));
  EXPECT_THAT(shown, Not(HasSubstr("activation_checkpointing: ")));
}

// Limits of a data set without such a key.
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

}  // namespace
}  // namespace flow
