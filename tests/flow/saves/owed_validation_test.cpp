// A run that ended before the validation of its last step: the resumed run validates first.
#include <gtest/gtest.h>

#include <filesystem>

#include "flow/stops/started.h"
#include "flow/training_files.h"
#include "tests/main/with_all.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("OwedValidation.*");

namespace fs = std::filesystem;

Outcome train_validating(const TrainingFiles& files, const std::string& run, const std::string& steps,
                         const Words& more) {
  Words words = files.train(run, {"--nproc-per-node", "2", "--step_scheduler.max_steps", steps,
                                  "--step_scheduler.val_every_steps", "2"});
  words.insert(words.end(), more.begin(), more.end());
  return heddle(words);
}

// The first run has no validation set, so its checkpoint looks like one that a signal requested.
TEST(OwedValidation, RunsOnceOnResumeAndCounts) {
  const TrainingFiles files;
  const Words validated = {"--validation_dataset",
                           "{file_pattern: " + files.path("train.bin") + ", seq_len: 32}"};
  ASSERT_EQ(train_validating(files, "whole", "6", validated).status, 0);
  ASSERT_EQ(train_validating(files, "cut", "4", {}).status, 0);
  const std::string before = files.path("cut/epoch_0_step_3/losses.json");
  EXPECT_TRUE(column(before, "val_loss").empty());

  const Outcome made_up = train_validating(files, "cut", "4", validated);
  ASSERT_EQ(made_up.status, 0) << made_up.error;
  EXPECT_EQ(column(before, "val_loss"), column(files.path("cut/validation.jsonl"), "loss"));
  EXPECT_EQ(fs::read_symlink(files.path("cut/LOWEST_VAL")), "epoch_0_step_3");

  const Outcome rest = train_validating(files, "cut", "6", validated);
  ASSERT_EQ(rest.status, 0) << rest.error;
  EXPECT_EQ(column(files.path("cut/validation.jsonl"), "step"), (std::vector<double>{3, 5}));
  const auto whole = column(files.path("whole/validation.jsonl"), "loss");
  EXPECT_EQ(column(files.path("cut/validation.jsonl"), "loss"),
            (std::vector<double>(whole.begin() + 1, whole.end())));
}

}  // namespace
}  // namespace flow
