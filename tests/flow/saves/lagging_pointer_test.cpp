// LATEST is not the checkpoint with the most steps: the run was killed before updating it, or a run restarted
// from an older checkpoint.
#include <gmock/gmock.h>

#include <filesystem>
#include <utility>

#include "flow/stops/started.h"
#include "flow/training_files.h"
#include "tests/main/with_all.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("LaggingPointer.*");

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(LaggingPointer, MovesToTheCheckpointItWasBeingMovedTo) {
  const TrainingFiles files;
  const auto train = [&](const std::string& steps) {
    return heddle(files.train("run", {"--distributed", "{strategy: single}", "--step_scheduler.max_steps",
                                      steps, "--checkpoint.restore_from", "LATEST"}));
  };
  ASSERT_EQ(train("2").status, 0);
  fs::rename(files.path("run/LATEST"), files.path("run/.LATEST.new"));  // killed before it was updated

  const Outcome rest = train("3");  // else it would start from scratch, and fail at the first checkpoint
  EXPECT_EQ(rest.status, 0) << rest.error;
  EXPECT_THAT(rest.out,
              HasSubstr("resumes " + files.path("run/epoch_0_step_1") + ": continues with step 3 of 3"));
  EXPECT_EQ(fs::read_symlink(files.path("run/LATEST")), "epoch_0_step_2");
}

// Steps after the older checkpoint exist twice: from the previous run, and from this run.
TEST(LaggingPointer, ResumesFromTheRunsOwnSaveOnRestart) {
  const TrainingFiles files;
  const auto train = [&](std::vector<std::string> more, const std::vector<std::string>& environment = {}) {
    more.insert(more.end(),
                {"--distributed", "{strategy: single}", "--checkpoint.save_consolidated", "false"});
    return heddle(files.train("run", more), environment);
  };
  ASSERT_EQ(train({"--step_scheduler.max_steps", "6", "--step_scheduler.ckpt_every_steps", "2"}).status, 0);
  const std::vector<std::string> older = {"--checkpoint.restore_from", "epoch_0_step_1",
                                          "--step_scheduler.max_steps"};
  const auto up_to = [&](const std::string& steps) {
    std::vector<std::string> words = older;
    words.push_back(steps);
    return words;
  };
  ASSERT_EQ(train(up_to("3")).status, 0);
  const Outcome again = train(up_to("5"), {"TORCHELASTIC_RESTART_COUNT=1"});
  EXPECT_EQ(again.status, 0) << again.error;
  EXPECT_THAT(again.out,
              HasSubstr("resumes " + files.path("run/epoch_0_step_2") + ": continues with step 4 of 5"));
}

// LATEST has fewer steps than the checkpoints of the run from which this run branched off.
TEST(LaggingPointer, IsFollowedInABranchWithANote) {
  const TrainingFiles files;
  const std::string latest = files.path("run/LATEST");
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.end(),
                {"--distributed", "{strategy: single}", "--checkpoint.save_consolidated", "false"});
    return heddle(files.train("run", more));
  };
  ASSERT_EQ(train({"--step_scheduler.max_steps", "6", "--step_scheduler.ckpt_every_steps", "2"}).status, 0);
  ASSERT_EQ(train({"--checkpoint.restore_from", "epoch_0_step_1", "--step_scheduler.max_steps", "3"}).status,
            0);
  for (const auto& [word, steps] :
       std::vector<std::pair<std::string, std::string>>{{"null", "5"}, {"LATEST", "7"}}) {
    const Outcome rest = train({"--checkpoint.restore_from", word, "--step_scheduler.max_steps", steps});
    ASSERT_EQ(rest.status, 0) << rest.error;
    const std::string from = steps == "5" ? "epoch_0_step_2" : "epoch_0_step_4";
    EXPECT_THAT(rest.out, HasSubstr("resumes " + files.path("run/") + from));
    EXPECT_THAT(rest.error,
                HasSubstr("warning: " + latest + " names " + from +
                          "; epoch_0_step_5 in the same directory has more steps; --checkpoint.restore_from "
                          "epoch_0_step_5 resumes from it\n"));
  }
  const Outcome later = train({"--step_scheduler.max_steps", "7"});
  EXPECT_THAT(later.out, HasSubstr("resumes " + files.path("run/epoch_0_step_6")));
  EXPECT_EQ(later.out.find("has more steps"), std::string::npos);
}

TEST(LaggingPointer, FallsBackWhenItsTargetIsMissingOrIncomplete) {
  const TrainingFiles files;
  const auto train = [&](const std::string& steps) {
    return heddle(files.train("run", {"--distributed", "{strategy: single}", "--step_scheduler.max_steps",
                                      steps, "--step_scheduler.ckpt_every_steps", "2"}));
  };
  ASSERT_EQ(train("4").status, 0);
  const std::string latest = files.path("run/LATEST"),
                    goes_on = ". Resuming from epoch_0_step_3, the complete checkpoint with the most steps\n";
  fs::remove(latest);
  EXPECT_THAT(train("4").error, HasSubstr("warning: " + latest + " names nothing" + goes_on));
  EXPECT_EQ(fs::read_symlink(latest), "epoch_0_step_3");
  fs::remove(latest);
  fs::create_directories(files.path("run/epoch_0_step_9/model"));
  fs::create_directory_symlink("epoch_0_step_9", latest);
  const Outcome rest = train("5");
  EXPECT_EQ(rest.status, 0) << rest.error;
  EXPECT_THAT(rest.error, HasSubstr("warning: " + latest +
                                    " names epoch_0_step_9, which is not a complete checkpoint" + goes_on));
  EXPECT_EQ(fs::read_symlink(latest), "epoch_0_step_4");
}

}  // namespace
}  // namespace flow
