// A checkpoint that was published while LATEST could not be moved to it.
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

}  // namespace
}  // namespace flow
