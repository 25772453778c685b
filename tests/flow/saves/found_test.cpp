// Contents that a run finds in its checkpoint directory: damaged checkpoints, those of another branch, copied
// pointers.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>

#include "flow/stops/stopping.h"
#include "tests/main/with_all.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("Branch.*");

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const Words kEvery2Sharded = {"--step_scheduler.ckpt_every_steps", "2", "--checkpoint.save_consolidated",
                              "false"};

Words found_up_to(const std::string& steps) {
  return plus(kEvery2Sharded, {"--step_scheduler.max_steps", steps});
}

size_t steps_in(const TrainingFiles& files) {
  return column(files.path("run/training.jsonl"), "step").size();
}

TEST(DamagedCheckpoint, IsNotOverwrittenByARunThatResumesBeforeIt) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("run", found_up_to("4"))).status, 0);
  fs::remove(files.path("run/epoch_0_step_3/optim/manifest.json"));
  const Outcome outcome = heddle(files.train("run", found_up_to("6")));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error,
              HasSubstr(files.path("run/epoch_0_step_3") +
                        " already exists and would be overwritten at step 4, because the run starts at step "
                        "3\n  hint: remove this checkpoint and all later ones, or set "));
  EXPECT_EQ(steps_in(files), 4u);
}

TEST(DamagedCheckpoint, IsKeptWhenItIsTheOnlyOne) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("run", found_up_to("2"))).status, 0);
  fs::remove(files.path("run/epoch_0_step_1/optim/manifest.json"));
  const Outcome outcome = heddle(files.train("run", found_up_to("6")));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(
      outcome.error,
      StartsWith(
          "error[input] checkpoint.restore_from: " + files.path("run/LATEST") +
          " names epoch_0_step_1, which is incomplete or cannot be read, and no other checkpoint exists\n"));
  EXPECT_EQ(steps_in(files), 2u);
}

TEST(CopiedPointer, IsRefusedBecauseNoSaveCouldUpdateIt) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("run", found_up_to("2"))).status, 0);
  const std::string latest = files.path("run/LATEST");
  fs::remove(latest);
  fs::copy(files.path("run/epoch_0_step_1"), latest, fs::copy_options::recursive);
  const Outcome outcome = heddle(files.train("run", found_up_to("6")));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.error, "error[config] checkpoint.checkpoint_dir: " + latest +
                               " is a directory, but must be a link to a checkpoint\n"
                               "  hint: remove the directory, which is a copy of the link's target\n");
}

// The names of the steps up to 500 are taken, and the run is asked to end in between.
TEST(Branch, IsSavedOnAStopAfterTheStepsOfTheOtherBranch) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("run", plus(kEvery2Sharded, {"--step_scheduler.max_steps", "1"}))).status, 0);
  for (int step = 1; step <= 500; ++step)
    fs::create_directory(
        files.path("run/epoch_" + std::to_string(step / 124) + "_step_" + std::to_string(step)));
  Started run(plus(files.train("run", {"--step_scheduler.save_checkpoint_every_epoch", "false"}), kLong));
  ASSERT_TRUE(under_way(files));
  kill(run.pid(), SIGTERM);
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.status, 143) << outcome.error;
  EXPECT_GE(step_of(outcome.out), 502) << outcome.out;
  EXPECT_GE(steps_in(files), 502u);
}

// The run has not saved anything yet.
TEST(Branch, ResumesFromItsBeginningWhenStartedAgain) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("run", found_up_to("5"))).status, 0);
  ASSERT_EQ(fs::read_symlink(files.path("run/LATEST")), "epoch_0_step_4");
  Started run(plus(files.train("run", {"--checkpoint.restore_from", "epoch_0_step_1", "--max-restarts", "1"}),
                   kLong));
  const auto lost = [&] {
    const auto ranks = run.children();
    if (ranks.size() != 1 || steps_in(files) < 8) return false;
    return kill(ranks[0], SIGKILL) == 0;
  };
  ASSERT_TRUE(eventually(lost));
  const std::string resumes = files.path("run/epoch_0_step_1") + ": continues with step 3 of ";
  ASSERT_TRUE(eventually([&] {
    const std::string said = run.output();
    return said.find(resumes) != said.rfind(resumes);  // a second time
  }));
  EXPECT_EQ(fs::read_symlink(files.path("run/LATEST")), "epoch_0_step_1");
  kill(run.pid(), SIGTERM);
  const Outcome outcome = run.wait();
  EXPECT_THAT(outcome.error, HasSubstr("restart 1 of 1: all ranks are started again and resume from " +
                                       files.path("run/epoch_0_step_1")));
  EXPECT_EQ(outcome.status, 143) << outcome.error;
}

TEST(ResumeChecks, CompareTheShuffleSeed) {
  const TrainingFiles files;
  const Words mixed = {"--dataset.shuffle_files", "true", "--dataloader.shuffle", "false"};
  ASSERT_EQ(heddle(files.train("run", plus(mixed, found_up_to("2")))).status, 0);
  const Outcome outcome = heddle(files.train("run", plus(plus(mixed, found_up_to("4")), {"--seed", "77"})));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error, HasSubstr("was saved with a different data order: seed was "));
}

TEST(ResumeChecks, CompareTheRotaryScaling) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("run", found_up_to("2"))).status, 0);
  const Outcome outcome = heddle(files.train(
      "run", plus(found_up_to("4"), {"--model.config.rope_scaling", "{rope_type: linear, factor: 4.0}"})));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error, HasSubstr("; it holds another model: rope_scaling was none, now linear 4\n"));
}

// The starting point of a run is the name of its checkpoint, whatever path led there.
TEST(RestoreFrom, FollowsALinkAndADirectoryWithASlash) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("run", found_up_to("2"))).status, 0);
  for (const char* word : {"run/LATEST", "run/epoch_0_step_1/"}) {
    const Outcome outcome =
        heddle(files.train("run", plus(found_up_to("2"), {"--checkpoint.restore_from", files.path(word)})));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_THAT(outcome.out, HasSubstr("resumes " + files.path("run/epoch_0_step_1") + ": all 2 steps"));
    EXPECT_EQ(fs::read_symlink(files.path("run/LATEST")), "epoch_0_step_1");
  }
}

TEST(LossCurve, RefusesToReplaceADirectory) {
  const TrainingFiles files;
  fs::create_directories(files.path("run/loss.svg/in_the_way"));
  const Outcome outcome = heddle(files.train("run", found_up_to("2")));
  EXPECT_EQ(outcome.status, 2) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr(files.path("run/loss.svg") + " is a directory\n"));
}

}  // namespace
}  // namespace flow
