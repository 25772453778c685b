// A checkpoint of another program is refused wherever a model or a checkpoint is expected.
#include <gmock/gmock.h>

#include <filesystem>

#include "training_files.h"

namespace flow {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ForeignCheckpoints, AreRefusedByEveryCommand) {
  const TrainingFiles files;
  const std::string path = files.path("dcp");
  std::filesystem::create_directories(path);
  files.write("dcp/.metadata", "");
  files.write("dcp/__0_0.distcp", "");
  const std::vector<std::vector<std::string>> commands = {
      {"generate", path, "--tokens", "1"},
      {"convert", path, files.path("out")},
      files.train("run", {"--checkpoint.restore_from", path}),
      files.train("run", {"--model", "{pretrained_model_name_or_path: " + path + "}"})};
  for (const auto& command : commands) {
    const Outcome outcome = heddle(command);
    EXPECT_EQ(outcome.status, 2) << command[0];
    const std::string where = command == commands.back() ? "--model: '" + path + "' " : path + ": ";
    EXPECT_EQ(
        outcome.error,
        "error[input] " + where +
            "is a checkpoint of PyTorch's distributed checkpoint (.metadata, *.distcp): its index is a "
            "Python pickle, which only Python can read\n  hint: python -m "
            "torch.distributed.checkpoint.format_utils dcp_to_torch DIR model.pt; then load model.pt into "
            "the transformers model and save_pretrained() a Hugging Face directory\n");
  }
  EXPECT_FALSE(std::filesystem::exists(files.path("out")));
}

TEST(ForeignCheckpoints, AreReportedWhenARunWouldResumeByItself) {
  const TrainingFiles files;
  std::filesystem::create_directories(files.path("run/epoch_0_step_3/model"));
  files.write("run/epoch_0_step_3/model/.metadata", "");
  const std::string what =
      files.path("run/epoch_0_step_3/model") + " is a checkpoint of PyTorch's distributed";
  const Outcome fresh = heddle(files.train("run", {"--step_scheduler.max_steps", "1"}));
  EXPECT_EQ(fresh.status, 0) << fresh.error;
  EXPECT_THAT(fresh.error, AllOf(HasSubstr("warning: " + what), HasSubstr("; starting fresh\n")));
  std::filesystem::remove_all(files.path("run/epoch_0_step_0"));
  std::filesystem::remove(files.path("run/LATEST"));
  std::filesystem::create_directory_symlink("epoch_0_step_3", files.path("run/LATEST"));
  const Outcome asked = heddle(files.train("run", {"--checkpoint.restore_from", "LATEST"}));
  EXPECT_EQ(asked.status, 2);
  EXPECT_THAT(asked.error, StartsWith("error[input] " + files.path("run/epoch_0_step_3/model") +
                                      ": is a checkpoint of PyTorch's distributed"));
}

}  // namespace
}  // namespace flow
