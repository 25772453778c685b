// A checkpoint of another program is refused wherever a model or a checkpoint is expected.
#include <gmock/gmock.h>

#include <filesystem>

#include "training_files.h"

namespace flow {
namespace {

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
    EXPECT_EQ(
        outcome.error,
        "error[input] " + path +
            ": is a checkpoint of PyTorch's distributed checkpoint (.metadata, *.distcp): its index is a "
            "Python pickle, which only Python reads\n  hint: python -m "
            "torch.distributed.checkpoint.format_utils dcp_to_torch DIR model.pt; then load model.pt into "
            "the transformers model and save_pretrained() a Hugging Face directory\n");
  }
  EXPECT_FALSE(std::filesystem::exists(files.path("out")));
}

}  // namespace
}  // namespace flow
