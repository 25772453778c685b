// Errors that a user meets, and failures of runs: exit statuses and messages.
#include <gmock/gmock.h>
#include <signal.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "flow/stops/started.h"
#include "training_files.h"

namespace flow {
namespace {

using ::testing::HasSubstr;

// Checks for one block on standard error, and the status.
void expect_refusal(const Outcome& outcome, int status, const std::string& message) {
  EXPECT_EQ(outcome.status, status) << outcome.error;
  EXPECT_THAT(outcome.error, ::testing::StartsWith("error["));
  EXPECT_THAT(outcome.error, HasSubstr(message));
}

TEST(Program, AnswersHelpAndVersion) {
  const Outcome help = heddle({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* command : {"train", "check", "plugins", "data", "generate", "convert", "schedule", "plan"})
    EXPECT_THAT(help.out, HasSubstr(command));
  EXPECT_EQ(heddle({"train", "--help"}).status, 0);
  EXPECT_THAT(heddle({"--version"}).out,
              ::testing::MatchesRegex("heddle [0-9.]+ \\(SDK [0-9]+\\)\nLibTorch 2.11.0[^ ]* in /.*/lib\n"));
}

TEST(Program, UsesTheLibTorchNamedByTheVariable) {
  const TrainingFiles files;
  const std::string package = files.path("torch");
  const auto list = [&] { return heddle({"plugins", "list"}, {"HEDDLE_TORCH=" + package}); };
  expect_refusal(list(), 2, "error[usage] HEDDLE_TORCH: '" + package + "' contains no lib/libtorch_cpu.so");
  expect_refusal(heddle({"--version"}, {"HEDDLE_TORCH=" + package}), 2, "contains no lib/libtorch_cpu.so");
  std::filesystem::create_directories(package + "/lib");
  files.write("torch/lib/libtorch_cpu.so", "no library");
  expect_refusal(list(), 2, package + "/lib/libtorch_cpu.so: ");  // the loader's message
  files.write("torch/version.py", "__version__ = '2.10.0+cpu'\n");
  expect_refusal(list(), 2, "'" + package + "' is torch 2.10.0; 2.11.0 is needed");
  files.write("torch/version.py", "__version__ = '2.11.0+cpu'\n");
  EXPECT_THAT(heddle({"--version"}, {"HEDDLE_TORCH=" + package}).out,
              HasSubstr("\nLibTorch 2.11.0+cpu in " + package + "/lib\n"));
  EXPECT_EQ(heddle({"plugins", "list"}, {"HEDDLE_TORCH="}).status, 0);
}

TEST(Program, PrintsErrorsAsJsonWhenAsked) {
  const Outcome outcome = heddle({"train", "missing.yaml", "--json"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.out,
              ::testing::StartsWith("{\"error\": {\"code\": \"config\", \"where\": \"missing.yaml"));
}

TEST(Refusals, NameATruncatedWeightsFile) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("first")).status, 0);
  const std::string model = files.path("first/LATEST/model/consolidated");
  std::filesystem::resize_file(model + "/model.safetensors",
                               std::filesystem::file_size(model + "/model.safetensors") / 2);
  const Outcome outcome =
      heddle(files.train("run", {"--model", "{pretrained_model_name_or_path: " + model + "}"}));
  expect_refusal(outcome, 2, "error[input] " + model + "/model.safetensors");
  expect_refusal(heddle({"generate", model, "--prompt", "a"}), 2,
                 "error[input] " + model + "/model.safetensors");
}

TEST(Refusals, PrintOneJsonErrorForAllRanks) {
  const TrainingFiles files;
  const Outcome outcome =
      heddle(files.train("run", {"--json", "--nproc-per-node", "2", "--metrics", "/proc/file"}));
  EXPECT_EQ(outcome.status, 1) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("{\"error\": {\"code\": \"io\""));
  const size_t first = outcome.out.find("{\"error\"");
  EXPECT_EQ(outcome.out.find("{\"error\"", first + 1), std::string::npos) << outcome.out;
}

TEST(Refusals, NameTokensOutsideTheVocabulary) {
  const TrainingFiles files;
  // One token late in a file: the run never reaches its step.
  std::string bytes = read_text(files.path("train.bin"));
  const size_t place = 12345, header = 1024;
  bytes[header + 2 * place + 1] = 1;  // of the high byte
  files.write("late.bin", bytes);
  const std::string token = std::to_string(256 + static_cast<unsigned char>(bytes[header + 2 * place]));
  const std::string late = "error[input] " + files.path("late.bin") + ": token 12345 is " + token +
                           "; the model's vocabulary has 256 tokens\n  hint: check that the data was "
                           "tokenized with this model's tokenizer";
  const Words two = {"--nproc-per-node", "2"};
  expect_refusal(heddle(files.train("late", plus(two, {"--dataset.file_pattern", files.path("late.bin")}))),
                 2, late);
  expect_refusal(heddle(files.train("late", {"--validation_dataset",
                                             "{file_pattern: " + files.path("late.bin") + ", seq_len: 16}"})),
                 2, late);
  EXPECT_FALSE(std::filesystem::exists(files.path("late/training.jsonl")));
}

// A file of 200 MB, mostly holes, with one token outside the vocabulary in row 43, which the check at the
// start skips.
TEST(UnreadableRow, EndsTheRunAfterSavingThePreviousStep) {
  const TrainingFiles files;
  const int32_t tokens = 100'000'000;
  const uint16_t outside = 300;
  std::string header = read_text(files.path("train.bin")).substr(0, 1024);
  std::memcpy(&header[8], &tokens, sizeof(tokens));
  files.write("late.bin", header);
  std::filesystem::resize_file(files.path("late.bin"), 1024 + 2 * static_cast<uintmax_t>(tokens));
  {
    std::fstream file(files.path("late.bin"), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(1024 + 2 * (43 * 1024 + 5));
    file.write(reinterpret_cast<const char*>(&outside), sizeof(outside));
  }
  for (const char* ranks : {"1", "2"}) {
    const std::string run = std::string("late") + ranks;
    const Words words = {"--nproc-per-node",
                         ranks,
                         "--dataset.file_pattern",
                         files.path("late.bin"),
                         "--dataset.seq_len",
                         "1024",
                         "--model.config.max_position_embeddings",
                         "1024",
                         "--step_scheduler.global_batch_size",
                         "16",
                         "--dataloader",
                         "{shuffle: false}"};
    expect_refusal(
        heddle(files.train(run, words)), 2,
        "error[input] " + files.path("late.bin") +
            ": step 3: token 44037 is 300; the model's vocabulary has 256 tokens (row 43 of the data "
            "set)\n  hint: check that the data was tokenized with this model's tokenizer");
    EXPECT_EQ(column(files.path(run + "/training.jsonl"), "step"), (std::vector<double>{0, 1}));
    EXPECT_TRUE(std::filesystem::exists(files.path(run + "/epoch_0_step_1/optim")));
    expect_refusal(heddle(files.train(run, words)), 2, "late.bin: step 3: token 44037 is 300");
  }
}

TEST(Refusals, AskForTokensWhereAModelWasNotTrainedOnBytes) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("run")).status, 0);
  std::filesystem::remove(files.path("run/LATEST/model/.hf_metadata/heddle_tokenizer.json"));
  expect_refusal(heddle({"generate", files.path("run"), "--prompt", "a"}), 2,
                 "the model has no tokenizer.json and was not trained on bytes of text");
  expect_refusal(heddle({"generate", files.path("run"), "--tokens", "1,256"}), 2,
                 "token 256 is outside the model's vocabulary of 256");
}

TEST(DiskFailure, EndsTheRunWhenTheDiskIsFull) {
  const TrainingFiles files;
  expect_refusal(heddle(files.train("run", {"--metrics", "/dev/full"})), 1,
                 "error[io] /dev/full: cannot be written: No space left on device");
  const Outcome two = heddle(files.train("two", {"--metrics", "/dev/full", "--nproc-per-node", "2"}));
  EXPECT_EQ(two.status, 1);
  EXPECT_THAT(two.error, HasSubstr("error[io] /dev/full: cannot be written: No space left on device"));
}

TEST(TokenOutput, LeavesDevicesAlone) {
  const TrainingFiles files;
  files.write("text.txt", "In the beginning");
  expect_refusal(heddle({"data", files.path("text.txt"), "--out", "/dev/full"}), 2,
                 "error[usage] --out: /dev/full exists and is not a regular file");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST(StdoutFailure, IsReportedWithStatus1) {
  for (const char* words : {" plugins list", " plugins inspect single"})
    expect_refusal(shell(HEDDLE_BINARY_DIR "/heddle" + std::string(words) + " > /dev/full"), 1,
                   "error[io] standard output: cannot be written");
}

TEST(OutputLink, ReplacesItsTarget) {
  const TrainingFiles files;
  files.write("text.txt", "In the beginning");
  files.write("old.bin", "old");
  std::filesystem::create_symlink(files.path("old.bin"), files.path("link.bin"));
  EXPECT_EQ(heddle({"data", files.path("text.txt"), "--out", files.path("link.bin"), "--force"}).status, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(files.path("link.bin")));
  EXPECT_GT(std::filesystem::file_size(files.path("old.bin")), 1024u);
}

// Without a GPU, or with CUDA_VISIBLE_DEVICES set to nothing, as ctest sets it.
TEST(Refusals, NameWhatABackendLacksBeforeAnyRankStarts) {
  const TrainingFiles files;
  const bool built = std::filesystem::exists(HEDDLE_BINARY_DIR "/plugins/libheddle_nccl.so");
  expect_refusal(heddle(files.train("run", {"--dist_env.backend", "nccl"})), 2,
                 built ? "dist_env.backend: backend 'nccl' is not available: "
                       : "dist_env.backend: there is no device 'nccl'; available: none (searched ");
}

TEST(ExportFailure, EndsTheRunOnceAndLeavesNoLatest) {
  const TrainingFiles files;
  // A limit on file sizes: the model (about 80 kB) exceeds it, and the metrics do not.
  std::string words;
  for (const std::string& word : files.train("run", {"--nproc-per-node", "2"})) words += " '" + word + "'";
  // Memory that ranks share is a file too. Without it ranks report this.
  const Outcome outcome = shell("ulimit -f 20; HEDDLE_SHM=0 exec " HEDDLE_BINARY_DIR "/heddle" + words);
  expect_refusal(outcome, 1, "error[io]");
  EXPECT_THAT(outcome.error, HasSubstr("File too large"));
  EXPECT_EQ(outcome.error.find("error["), outcome.error.rfind("error[")) << outcome.error;
  EXPECT_FALSE(std::filesystem::exists(files.path("run/LATEST")));
}

// A run of many steps on two ranks.
Words long_run(const TrainingFiles& files) {
  return files.train("run", {"--nproc-per-node", "2", "--step_scheduler.max_steps", "1000000",
                             "--step_scheduler.num_epochs", "1000000"});
}

bool a_step_is_reported(const TrainingFiles& files) {
  return eventually([&] { return column(files.path("run/training.jsonl"), "step").size() > 2; });
}

TEST(RankFailure, EndsAllRanksAndNamesTheRank) {
  const TrainingFiles files;
  Started run(long_run(files));
  ASSERT_TRUE(a_step_is_reported(files));
  const std::vector<pid_t> ranks = run.children();
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGKILL);
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.error, HasSubstr("error[rank_lost]"));
  EXPECT_THAT(outcome.error, HasSubstr("rank 1"));
  for (const pid_t rank : ranks) EXPECT_FALSE(is_alive(rank));
}

}  // namespace
}  // namespace flow
