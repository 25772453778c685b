// Refused places of outputs: FIFOs and model directories.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "run/outputs/output_run.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;
using tests::OutputRun;

// A FIFO may never be read, and the run would wait.
TEST(Outputs, RefuseAFifoAndTakeAnOpenPipe) {
  const OutputRun run;
  ASSERT_EQ(::mkfifo((run.folder / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(run.refusal({"", run.folder / "fifo"}),
            "error[usage] --trace: FOLDER/fifo exists and is not a regular file\n  hint: choose a file "
            "that does not exist");
  EXPECT_THAT(run.refusal({run.folder / "fifo", ""}), HasSubstr("FOLDER/fifo exists and is not a regular"));
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(run.refusal({"/dev/fd/" + std::to_string(ends[1]), ""}), "no error");
  ::close(ends[0]);
  ::close(ends[1]);
  run.folder.write("run/keep", "");
  ASSERT_EQ(::mkfifo((run.folder / "run/training.jsonl").c_str(), 0600), 0);
  EXPECT_THAT(run.refusal(), HasSubstr("FOLDER/run/training.jsonl exists and is not a regular file"));
}

TEST(Outputs, RefuseAModelDirectoryForCheckpoints) {
  const OutputRun run;
  for (const char* name : {"config.json", "model.safetensors"}) {
    const std::filesystem::path file = run.folder.write("run/" + std::string(name), "mine\n");
    EXPECT_EQ(run.refusal(),
              "error[config] checkpoint.checkpoint_dir: FOLDER/run contains a model (" + std::string(name) +
                  "), which heddle generate, convert and train would find instead of the run's checkpoints\n"
                  "  hint: set checkpoint.checkpoint_dir to another directory");
    EXPECT_EQ(run.refusal({}, ", enabled: false"), "no error");
    std::filesystem::remove(file);
  }
  EXPECT_EQ(run.refusal(), "no error");
}

}  // namespace
}  // namespace heddle
