// Where LATEST is not the checkpoint with the most steps: published while it could not be moved, or of a run
// that began again from an older one.
#include <gmock/gmock.h>

#include <filesystem>

#include "started.h"
#include "training_files.h"

namespace flow {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(LaggingPointer, NamesWhatItWasAboutToName) {
  const TrainingFiles files;
  const auto train = [&](const std::string& steps) {
    return heddle(files.train("run", {"--distributed", "{strategy: single}", "--step_scheduler.max_steps",
                                      steps, "--checkpoint.restore_from", "LATEST"}));
  };
  fs::create_directories(files.path("run/LATEST/in_the_way"));
  const Outcome stuck = train("2");
  EXPECT_EQ(stuck.status, 1);
  EXPECT_THAT(stuck.error, HasSubstr("error[io] " + files.path("run/LATEST") + ": cannot be written: "));
  fs::remove_all(files.path("run/LATEST"));

  const Outcome rest = train("3");  // else it would start fresh, and fail where the first checkpoint stands
  EXPECT_EQ(rest.status, 0) << rest.error;
  EXPECT_THAT(rest.out,
              HasSubstr("resumes " + files.path("run/epoch_0_step_1") + ": goes on with step 3 of 3"));
  EXPECT_EQ(fs::read_symlink(files.path("run/LATEST")), "epoch_0_step_2");
}

// Steps beyond the older checkpoint are there twice over: those of the run before, and what this one has
// saved.
TEST(LaggingPointer, ARestartGoesOnFromWhatThisRunHasSaved) {
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
              HasSubstr("resumes " + files.path("run/epoch_0_step_2") + ": goes on with step 4 of 5"));
}

}  // namespace
}  // namespace flow
