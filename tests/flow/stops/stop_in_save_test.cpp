// Signals that arrive during a save, or after the last one. The run is stopped at that point, so that signals
// arrive nowhere else.
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>

#include "stopping.h"
#include "tests/main/with_all.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("StopInASave.*");

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

const Words kOnTwoRanks = {"--nproc-per-node", "2"};
const Words kEachStep = plus(kLong, {"--step_scheduler.ckpt_every_steps", "1"});

// Returns the step of the incomplete checkpoint.
std::optional<int64_t> step_in_the_making(const TrainingFiles& files) {
  static const std::regex kName("epoch_[0-9]+_step_([0-9]+)\\.incomplete");
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(files.path("run"), none)) {
    std::smatch words;
    const std::string name = entry.path().filename().string();
    if (std::regex_match(name, words, kName)) return std::stoll(words[1]);
  }
  return std::nullopt;
}

// 'T': stopped; 'Z': ended.
char state_of(pid_t pid) {
  std::string line;
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::getline(file, line);
  const size_t end = line.rfind(')');
  return end == std::string::npos ? 'Z' : line.at(end + 2);
}

// Stops all processes of the run. Returns false if the run has ended.
bool stand_still(const Started& run) {
  kill(-run.pid(), SIGSTOP);
  std::vector<pid_t> all = run.children();
  all.push_back(run.pid());
  for (const pid_t pid : all)
    while (state_of(pid) != 'T' && state_of(pid) != 'Z') {
    }
  return state_of(run.pid()) == 'T';
}

// Stops the run while `there` is true. Checks continuously, for up to a minute.
template <class Question>
bool stand_still_where(const Started& run, const Question& there) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  for (;;) {
    while (!there())
      if (state_of(run.pid()) == 'Z' || std::chrono::steady_clock::now() > end) return false;
    if (!stand_still(run)) return false;
    if (there()) return true;
    kill(-run.pid(), SIGCONT);
  }
}

Outcome ended_by(Started& run, int number) {
  kill(run.pid(), number);
  kill(-run.pid(), SIGCONT);
  return run.wait();
}

// The thread that receives signals may see the signal after the save. Then the run ends one step later.
TEST(StopInASave, EndsTheRunWithThatSave) {
  const TrainingFiles files;
  Started run(plus(files.train("run", kOnTwoRanks), kEachStep));
  ASSERT_TRUE(under_way(files));
  ASSERT_TRUE(stand_still_where(run, [&] { return step_in_the_making(files).has_value(); }));
  const int64_t step = *step_in_the_making(files);
  const Outcome outcome = ended_by(run, SIGTERM);
  EXPECT_EQ(outcome.status, 143) << outcome.error;
  const int64_t steps = step_of(outcome.out);
  EXPECT_GT(steps, step) << outcome.out;
  EXPECT_LE(steps, step + 2) << outcome.out;
  EXPECT_EQ(column(files.path("run/training.jsonl"), "step").size(), static_cast<size_t>(steps));
  EXPECT_EQ(checkpoints(files), static_cast<size_t>(steps));  // all of them, and no incomplete one
  EXPECT_EQ(step_in_the_making(files), std::nullopt);
  expect_goes_on(files, kOnTwoRanks, steps);
}

TEST(StopInASave, EndsTheRunWithTheCurrentStepDuringAnAsyncSave) {
  const TrainingFiles files;
  const Words async = plus(kOnTwoRanks, {"--checkpoint.is_async", "true"});
  Started run(plus(files.train("run", async), kEachStep));
  ASSERT_TRUE(under_way(files));
  ASSERT_TRUE(stand_still_where(run, [&] { return step_in_the_making(files).has_value(); }));
  const int64_t before = *step_in_the_making(files);
  const Outcome outcome = ended_by(run, SIGTERM);
  EXPECT_EQ(outcome.status, 143) << outcome.error;
  const int64_t steps = step_of(outcome.out);
  EXPECT_GT(steps, before);
  EXPECT_LE(steps, before + 3) << "one that was under way, and one that had not asked yet";
  EXPECT_EQ(checkpoints(files), static_cast<size_t>(steps));  // all of them, and no incomplete one
  EXPECT_EQ(step_in_the_making(files), std::nullopt);
  expect_goes_on(files, async, steps);
}

// Signals in the save of the last step, and at its publication. A run that was faster is tried again.
TEST(StopInASave, ChangesNothingInTheLastStep) {
  for (const char* name : {"epoch_0_step_3.incomplete", "epoch_0_step_3"}) {
    bool came_in_time = false;
    for (int attempt = 0; attempt < 50 && !came_in_time; ++attempt) {
      const TrainingFiles files;
      Started run(files.train("run", plus(kOnTwoRanks, {"--step_scheduler.max_steps", "4"})));
      came_in_time = stand_still_where(run, [&] { return fs::exists(files.path("run/") + name); });
      const Outcome outcome = ended_by(run, SIGTERM);
      EXPECT_EQ(outcome.status, 0) << outcome.error;
      EXPECT_THAT(outcome.out, Not(HasSubstr("stopped by")));
      EXPECT_TRUE(fs::exists(files.path("run/epoch_0_step_3/model/consolidated/model.safetensors")));
      if (came_in_time) expect_goes_on(files, kOnTwoRanks, 4);
    }
    EXPECT_TRUE(came_in_time) << name;
  }
}

}  // namespace
}  // namespace flow
