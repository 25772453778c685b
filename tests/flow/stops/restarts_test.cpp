// Runs that lose a rank and are restarted by the local launcher or by an elastic agent.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "stopping.h"
#include "tests/main/with_all.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("Restarts.*:Elastic.*");

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// More steps than the test needs, independent of the machine's speed.
const Words kLongRun =
    plus(kLong, {"--step_scheduler.ckpt_every_steps", "20", "--checkpoint.save_consolidated", "false",
                 "--checkpoint.max_recent_checkpoints", "2"});
const Words kOnAPair = {"--nproc-per-node", "2"};

bool has_saved(const TrainingFiles& files) {
  return eventually([&] { return fs::exists(files.path("run/LATEST")); });
}

// Waits for a checkpoint that is newer than the current newest.
bool saves_again(const TrainingFiles& files) {
  const fs::path latest = files.path("run/LATEST"), before = fs::read_symlink(latest);
  return eventually([&] {
    std::error_code changes;
    const fs::path now = fs::read_symlink(latest, changes);
    return !changes && now != before;
  });
}

TEST(Restarts, ResumeFromTheLastCheckpoint) {
  const TrainingFiles files;
  Started run(plus(files.train("run", plus(kOnAPair, {"--max-restarts", "2"})), kLongRun));
  ASSERT_TRUE(has_saved(files));
  const std::vector<pid_t> ranks = run.children();
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGKILL);
  ASSERT_TRUE(eventually([&] { return run.errors().find("restart 1 of 2") != std::string::npos; }));
  ASSERT_TRUE(saves_again(files));
  kill(run.pid(), SIGTERM);
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.status, 143) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("rank 1"));
  EXPECT_THAT(outcome.error, HasSubstr("restart 1 of 2: all ranks are started again and resume from " +
                                       files.path("run/epoch_")));
  EXPECT_THAT(outcome.error, Not(HasSubstr("restart 2")));
  for (const pid_t rank : ranks) EXPECT_FALSE(is_alive(rank));
  expect_goes_on(files, kOnAPair, step_of(outcome.out));
}

TEST(Restarts, EndWithTheLastStatusWhenExhausted) {
  const TrainingFiles files;
  Started run(plus(files.train("run", {"--max-restarts", "1", "--checkpoint.enabled", "false"}), kLong));
  std::vector<pid_t> lost;
  for (int start = 0; start < 2; ++start) {
    const auto fresh = [&] {
      const auto now = run.children();
      return now.size() == 1 && now != lost && !column(files.path("run/training.jsonl"), "step").empty();
    };
    ASSERT_TRUE(eventually(fresh));
    lost = run.children();
    kill(lost[0], SIGKILL);
  }
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.error, HasSubstr("rank 0 was killed by signal 9 (Killed)"));
  EXPECT_THAT(outcome.error,
              HasSubstr("restart 1 of 1: all ranks are started again and start at the first step, "
                        "because nothing was saved yet\n"));
}

TEST(Restarts, DoNotFollowARequestedStop) {
  for (const auto& [signals, status] : {std::pair{"SIGTERM", 143}, std::pair{"null", 1}}) {
    const TrainingFiles files;
    Started run(plus(files.train("run", {"--nproc-per-node", "2", "--max-restarts", "5",
                                         "--step_scheduler.preemption_signal", signals}),
                     kLongRun));
    ASSERT_TRUE(has_saved(files));
    kill(run.pid(), SIGTERM);
    const Outcome outcome = run.wait();
    EXPECT_EQ(outcome.status, status) << outcome.error;
    EXPECT_THAT(outcome.error, Not(HasSubstr("restart")));
  }
}

TEST(Restarts, DoNotFollowWrongInput) {
  const TrainingFiles files;
  Started first(plus(files.train("run"), kLongRun));
  ASSERT_TRUE(has_saved(files));
  // A checkpoint that the first run has removed is not searched for: the other error takes precedence.
  const Words gone = {"--checkpoint.restore_from", "epoch_0_step_1"};
  const Outcome second = heddle(
      plus(files.train("run", {"--nproc-per-node", "2", "--max-restarts", "5"}), plus(kLongRun, gone)));
  EXPECT_EQ(second.status, 2);
  EXPECT_THAT(second.error, HasSubstr("another run saves in "));
  EXPECT_THAT(second.error, Not(HasSubstr("restart")));
}

TEST(Restarts, AreLeftToALauncher) {
  const TrainingFiles files;
  const Outcome outcome = heddle(files.train("run", {"--max-restarts", "1"}), place(0, 2));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.error,
            "error[usage] heddle train: --max-restarts is given, but torchrun starts the ranks\n"
            "  hint: use torchrun's own --max-restarts, or Slurm's --requeue\n");
}

// A worker of torchrun's agent.
std::unique_ptr<Started> worker(const Words& words, int rank, int restart) {
  return std::make_unique<Started>(
      words, plus(place(rank, 2), {"TORCHELASTIC_USE_AGENT_STORE=False", "TORCHELASTIC_MAX_RESTARTS=3",
                                   "TORCHELASTIC_RESTART_COUNT=" + std::to_string(restart)}));
}

// The configuration names the checkpoint of the first start. The second start resumes from what the first
// saved.
TEST(Elastic, StartsResumeFromTheLastCheckpoint) {
  const TrainingFiles files;
  const Words three = {"--step_scheduler.max_steps", "3"};
  ASSERT_EQ(heddle(plus(plus(files.train("run", kOnAPair), kLongRun), three)).status, 0);
  const Words words = plus(files.train("run", {"--checkpoint.restore_from", "epoch_0_step_2"}), kLongRun);
  auto first = worker(words, 0, 0), second = worker(words, 1, 0);
  ASSERT_TRUE(eventually(
      [&] { return !fs::exists(files.path("run/epoch_0_step_2")); }));  // two checkpoints were saved since
  // Not during the save after 40 steps: a stop that finds everything saved needs no other rank.
  ASSERT_TRUE(eventually([&] { return column(files.path("run/training.jsonl"), "step").size() > 42; }));
  kill(second->pid(), SIGKILL);
  kill(first->pid(), SIGTERM);  // as the agent does, immediately
  const Outcome ended = first->wait();
  EXPECT_EQ(ended.status, 1) << ended.out << ended.error;
  second->wait();
  first = worker(words, 0, 1), second = worker(words, 1, 1);
  ASSERT_TRUE(saves_again(files));
  kill(first->pid(), SIGTERM);
  const Outcome outcome = first->wait();
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(second->wait().status, 0);
  expect_goes_on(files, kOnAPair, step_of(outcome.out));
}

}  // namespace
}  // namespace flow
