// Asynchronous saves write the bytes of synchronous saves, and their failures are reported.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "flow/stops/started.h"
#include "flow/training_files.h"

namespace flow {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const Words kTwoRanks = {"--distributed", "{strategy: ddp}", "--nproc-per-node", "2"};
const Words kOften = {"--step_scheduler.ckpt_every_steps", "2", "--step_scheduler.max_steps", "8"};
const Words kAsync = {"--checkpoint.is_async", "true"};

// Returns every file of a checkpoint except the configuration, which records how it was saved.
std::map<std::string, std::string> files_of(const fs::path& checkpoint) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(checkpoint))
    if (entry.is_regular_file() && entry.path().filename() != "config.yaml")
      files[fs::relative(entry.path(), checkpoint)] = read_text(entry.path());
  return files;
}

TEST(Async, WritesTheSameBytesAsASynchronousSave) {
  const TrainingFiles files;
  const Words words = plus(kTwoRanks, plus(kOften, {"--checkpoint.save_consolidated", "every"}));
  const Outcome waits = heddle(files.train("waits", words));
  const Outcome async = heddle(files.train("async", plus(words, kAsync)));
  ASSERT_EQ(waits.status, 0) << waits.error;
  ASSERT_EQ(async.status, 0) << async.error;
  EXPECT_EQ(without_clock(files.path("async/training.jsonl")),
            without_clock(files.path("waits/training.jsonl")));
  for (const char* step : {"1", "3", "5", "7"}) {
    const std::string name = std::string("/epoch_0_step_") + step;
    const auto got = files_of(files.path("async") + name);
    EXPECT_EQ(got, files_of(files.path("waits") + name)) << step;
    EXPECT_TRUE(got.contains("model/consolidated/model.safetensors")) << step;
    EXPECT_TRUE(got.contains("optim/shard-00002-optim-00001-of-00001.safetensors")) << step;
  }
  EXPECT_EQ(fs::read_symlink(files.path("async/LATEST")), "epoch_0_step_7");
}

TEST(Async, ResumesBitForBit) {
  const TrainingFiles files;
  const Words words = plus(kTwoRanks, kAsync);
  ASSERT_EQ(heddle(files.train("whole", plus(words, kOften))).status, 0);
  ASSERT_EQ(heddle(files.train("cut", plus(words, {"--step_scheduler.max_steps", "4"}))).status, 0);
  ASSERT_EQ(heddle(files.train("cut", plus(words, {"--step_scheduler.max_steps", "8"}))).status, 0);
  EXPECT_EQ(without_clock(files.path("cut/training.jsonl")),
            without_clock(files.path("whole/training.jsonl")));
  EXPECT_EQ(files_of(files.path("cut/epoch_0_step_7/optim")),
            files_of(files.path("whole/epoch_0_step_7/optim")));
}

// Creates a file at the path of this run's incomplete directories, and returns the path.
std::string obstruct(const TrainingFiles& files, const Words& staging) {
  const Words one =
      plus(staging, {"--step_scheduler.max_steps", "1", "--checkpoint.save_consolidated", "false"});
  EXPECT_EQ(heddle(files.train("run", one)).status, 0);
  const fs::path place = *fs::directory_iterator(files.path("staging"));
  fs::remove_all(place);
  std::ofstream(place) << "in the way";
  return place.string();
}

// A save at the end of each epoch, so the next one would be an epoch later.
TEST(Async, EndsTheRunOnAFailureBeforeTheNextSave) {
  const TrainingFiles files;
  const Words staging = plus(kTwoRanks, {"--checkpoint.staging_dir", files.path("staging")});
  const std::string place = obstruct(files, staging);
  const Words epochs = {"--step_scheduler.max_steps",        "none", "--step_scheduler.num_epochs", "2",
                        "--step_scheduler.ckpt_every_steps", "1000"};
  const Outcome outcome = heddle(files.train("run", plus(plus(staging, epochs), kAsync)));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.error,
              StartsWith("error[io] " + place + "/epoch_0_step_123.incomplete: cannot be created: "));
  const size_t steps = column(files.path("run/training.jsonl"), "step").size();
  EXPECT_GE(steps, 125u);
  EXPECT_LT(steps, 248u);
}

TEST(Async, EndsTheRunOnAFailureOfItsLastSave) {
  const TrainingFiles files;
  const Words staging = plus(kTwoRanks, {"--checkpoint.staging_dir", files.path("staging")});
  const std::string place = obstruct(files, staging);
  const Outcome outcome =
      heddle(files.train("run", plus(plus(staging, kAsync), {"--step_scheduler.max_steps", "4"})));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.error, StartsWith("error[io] " + place + "/epoch_0_step_3.incomplete: "));
}

TEST(Staging, UsesTheConfiguredDirectory) {
  const TrainingFiles files;
  fs::create_directories(files.path("staging/epoch_0_step_1.incomplete/left"));
  const Words words =
      plus(kOften, {"--checkpoint.staging_dir", files.path("staging"), "--checkpoint.cpu_offload", "true",
                    "--checkpoint.wait_for_staging", "true"});
  const Outcome outcome = heddle(files.train("run", words));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_TRUE(fs::exists(files.path("run/epoch_0_step_1/model/manifest.json")));
  EXPECT_FALSE(fs::exists(files.path("run/epoch_0_step_1/left")));
  EXPECT_TRUE(fs::exists(files.path("staging/epoch_0_step_1.incomplete/left")));  // of another run
}

// Leftovers of a step that this run does not save. The directory belongs to this run.
TEST(Staging, RemovesTheFilesOfAnInterruptedRun) {
  const TrainingFiles files;
  const auto train = [&](const std::string& steps) {
    return heddle(files.train(
        "run", {"--checkpoint.staging_dir", files.path("staging"), "--step_scheduler.max_steps", steps}));
  };
  ASSERT_EQ(train("1").status, 0);
  const fs::path own = *fs::directory_iterator(files.path("staging"));
  fs::create_directories(own / "epoch_9_step_999.incomplete/model");
  const Outcome second = train("2");
  EXPECT_THAT(second.error, HasSubstr("warning: removed " + (own / "epoch_9_step_999.incomplete").string() +
                                      ", left by an interrupted run\n"));
  EXPECT_TRUE(fs::is_empty(own));
}

TEST(Staging, IsRefusedOnAnotherFileSystem) {
  const TrainingFiles files;
  const Outcome outcome = heddle(files.train("run", {"--checkpoint.staging_dir", "/proc/staging"}));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(
      outcome.error,
      "error[config] --checkpoint.staging_dir: staging_dir /proc/staging is on another file system than "
      "checkpoint_dir " +
          files.path("run") +
          ", so a checkpoint cannot be renamed from the one to the other\n"
          "  hint: choose a directory next to checkpoint_dir, or remove checkpoint.staging_dir\n");
  EXPECT_FALSE(fs::exists(files.path("run")));
}

}  // namespace
}  // namespace flow
