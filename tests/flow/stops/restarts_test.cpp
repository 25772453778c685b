// Runs that lose a rank and are started again: by the local launcher, or by an elastic agent.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "flow/training_files.h"
#include "started.h"

namespace flow {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

const Words kLongRun = {
    "--step_scheduler.max_steps",          "80", "--step_scheduler.num_epochs",    "100",
    "--step_scheduler.ckpt_every_steps",   "20", "--checkpoint.save_consolidated", "false",
    "--checkpoint.max_recent_checkpoints", "2"};

bool has_saved(const TrainingFiles& files) {
  return eventually([&] { return fs::exists(files.path("run/LATEST")); });
}

// The run and one that lost nobody end with the same bits.
void expect_same_end(const TrainingFiles& files) {
  const Outcome whole = heddle(plus(files.train("whole", {"--nproc-per-node", "2"}), kLongRun));
  ASSERT_EQ(whole.status, 0) << whole.error;
  EXPECT_EQ(column(files.path("whole/training.jsonl"), "step").size(), 80u);
  EXPECT_EQ(without_clock(files.path("run/training.jsonl")),
            without_clock(files.path("whole/training.jsonl")));
  for (const char* part : {"model", "optim"}) {
    const auto manifest = [&](const std::string& run) {
      return read_text(files.path(run) + "/LATEST/" + part + "/manifest.json");
    };
    EXPECT_FALSE(manifest("run").empty());
    EXPECT_EQ(manifest("run"), manifest("whole"));
  }
}

TEST(Restarts, GoOnFromTheLastCheckpointByThemselves) {
  const TrainingFiles files;
  Started run(plus(files.train("run", {"--nproc-per-node", "2", "--max-restarts", "2"}), kLongRun));
  ASSERT_TRUE(has_saved(files));
  const std::vector<pid_t> ranks = run.children();
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGKILL);
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.error, HasSubstr("rank 1"));
  EXPECT_THAT(outcome.error, HasSubstr("restart 1 of 2: all ranks are started again and resume from " +
                                       files.path("run/epoch_")));
  EXPECT_THAT(outcome.error, Not(HasSubstr("restart 2")));
  for (const pid_t rank : ranks) EXPECT_FALSE(is_alive(rank));
  expect_same_end(files);
}

// One rank is a process of its own then; without a checkpoint it starts from the beginning.
TEST(Restarts, EndWithTheLastStatusWhenThereAreNoMore) {
  const TrainingFiles files;
  Started run(
      files.train("run", {"--max-restarts", "1", "--step_scheduler.max_steps", "1000000",
                          "--step_scheduler.num_epochs", "1000000", "--checkpoint.enabled", "false"}));
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
  EXPECT_THAT(outcome.error, HasSubstr("restart 1 of 1: all ranks are started again from the first step, as "
                                       "nothing was saved yet\n"));
}

TEST(Restarts, AreNotForRunsThatWereAskedToEnd) {
  for (const auto& [signals, status] : {std::pair{"SIGTERM", 143}, std::pair{"null", 1}}) {
    const TrainingFiles files;
    Started run(plus(files.train("run", {"--nproc-per-node", "2", "--max-restarts", "5",
                                         "--step_scheduler.preemption_signal", signals}),
                     plus(kLongRun, {"--step_scheduler.max_steps", "100000"})));
    ASSERT_TRUE(has_saved(files));
    kill(run.pid(), SIGTERM);
    const Outcome outcome = run.wait();
    EXPECT_EQ(outcome.status, status) << outcome.error;
    EXPECT_THAT(outcome.error, Not(HasSubstr("restart")));
  }
}

TEST(Restarts, AreNotForWrongInput) {
  const TrainingFiles files;
  Started first(plus(files.train("run"), plus(kLongRun, {"--step_scheduler.max_steps", "100000"})));
  ASSERT_TRUE(has_saved(files));
  // What the first has removed by now is not looked for: while it saves there, nothing else is worth saying.
  const Words gone = {"--checkpoint.restore_from", "epoch_0_step_1"};
  const Outcome second = heddle(
      plus(files.train("run", {"--nproc-per-node", "2", "--max-restarts", "5"}), plus(kLongRun, gone)));
  EXPECT_EQ(second.status, 2);
  EXPECT_THAT(second.error, HasSubstr("another run saves in "));
  EXPECT_THAT(second.error, Not(HasSubstr("restart")));
}

TEST(Restarts, AreTheLaunchersWhereThereIsOne) {
  const TrainingFiles files;
  const Outcome outcome = heddle(files.train("run", {"--max-restarts", "1"}), place(0, 2));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.error,
            "error[usage] heddle train: --max-restarts is given, but torchrun starts the ranks\n"
            "  hint: torchrun has --max-restarts itself; Slurm starts a job again with --requeue\n");
}

// A worker of torchrun's agent.
std::unique_ptr<Started> worker(const Words& words, int rank, int restart) {
  return std::make_unique<Started>(
      words, plus(place(rank, 2), {"TORCHELASTIC_USE_AGENT_STORE=False", "TORCHELASTIC_MAX_RESTARTS=3",
                                   "TORCHELASTIC_RESTART_COUNT=" + std::to_string(restart)}));
}

// The configuration names the checkpoint that the first start begins with; the second resumes from what the
// first has saved.
TEST(Elastic, StartsGoOnFromTheLastCheckpointByThemselves) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(plus(plus(files.train("run", {"--nproc-per-node", "2"}), kLongRun),
                        {"--step_scheduler.max_steps", "3"}))
                .status,
            0);
  const Words words = plus(files.train("run", {"--checkpoint.restore_from", "epoch_0_step_2"}), kLongRun);
  auto first = worker(words, 0, 0), second = worker(words, 1, 0);
  ASSERT_TRUE(eventually([&] { return !fs::exists(files.path("run/epoch_0_step_2")); }));  // two came since
  kill(second->pid(), SIGKILL);
  kill(first->pid(), SIGTERM);  // as the agent does, at once
  EXPECT_EQ(first->wait().status, 1);
  second->wait();
  first = worker(words, 0, 1), second = worker(words, 1, 1);
  const Outcome outcome = first->wait();
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(second->wait().status, 0);
  expect_same_end(files);
}

}  // namespace
}  // namespace flow
