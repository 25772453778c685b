// A run that is asked to end saves on all ranks at one step, ends with the signal's status, and resumes bit
// for bit.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "stopping.h"
#include "tests/main/with_all.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("Stop.FollowsTheConfigured*:Stop.EndsWithTheStatus*");

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Stop, SavesOnAllRanksAtOneStepAndResumesBitForBit) {
  const TrainingFiles files;
  const Words two = {"--nproc-per-node", "2"};
  Started run(plus(files.train("run", two), kLong));
  ASSERT_TRUE(under_way(files));
  kill(run.pid(), SIGTERM);
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.status, 143) << outcome.error;
  EXPECT_EQ(
      outcome.error,
      "SIGTERM: the run saves and stops after this step; a second signal stops it at once without saving\n");
  const int64_t step = step_of(outcome.out);
  ASSERT_GT(step, 2) << outcome.out;
  EXPECT_EQ(column(files.path("run/training.jsonl"), "step").size(), static_cast<size_t>(step));
  EXPECT_EQ(checkpoints(files), 1u);
  expect_goes_on(files, two, step);
}

TEST(Stop, TakesOneMoreStepWhenOneRankIsSignalled) {
  const TrainingFiles files;
  Started run(plus(files.train("run"), kLong));
  ASSERT_TRUE(under_way(files));
  kill(run.pid(), SIGINT);
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.status, 130) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("stopped by SIGINT after step "));
  expect_goes_on(files, {}, step_of(outcome.out));
}

// Ctrl-C in a terminal, and a signal that only one rank receives.
TEST(Stop, SavesOnceWhicheverProcessIsSignalled) {
  for (const bool group : {true, false}) {
    const TrainingFiles files;
    Started run(plus(files.train("run", {"--nproc-per-node", "4"}), kLong));
    ASSERT_TRUE(under_way(files));
    kill(group ? -run.pid() : run.children().at(1), SIGINT);
    const Outcome outcome = run.wait();
    EXPECT_EQ(outcome.status, 130) << outcome.error;
    EXPECT_GT(step_of(outcome.out), 2) << outcome.out;
    EXPECT_EQ(checkpoints(files), 1u);
  }
}

TEST(Stop, InterruptsAValidation) {
  const TrainingFiles files;
  std::string text;
  for (int i = 0; i < 200; ++i) text += read_text(files.path("text.txt"));
  files.write("long.txt", text);
  ASSERT_EQ(heddle({"data", files.path("long.txt"), "--out", files.path("long.bin")}).status, 0);
  Started run(plus(files.train("run", {"--nproc-per-node", "2", "--step_scheduler.val_every_steps", "1",
                                       "--validation_dataset",
                                       "{file_pattern: " + files.path("long.bin") + ", seq_len: 16}"}),
                   kLong));
  ASSERT_TRUE(eventually([&] { return column(files.path("run/training.jsonl"), "step").size() == 1; }));
  kill(run.pid(), SIGTERM);
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.status, 143) << outcome.error;
  EXPECT_EQ(step_of(outcome.out), 1) << outcome.out;
  EXPECT_TRUE(fs::exists(files.path("run/epoch_0_step_0/step_scheduler.json")));
  EXPECT_EQ(read_text(files.path("run/validation.jsonl")), "");
}

TEST(Stop, ReportsThatNothingWasSavedWithoutCheckpoints) {
  const TrainingFiles files;
  Started run(plus(files.train("run", {"--checkpoint.enabled", "false"}), kLong));
  ASSERT_TRUE(under_way(files));
  kill(run.pid(), SIGTERM);
  const Outcome outcome = run.wait();
  EXPECT_EQ(outcome.status, 143) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr(": no checkpoint was saved because checkpoint.enabled is false"));
}

TEST(Stop, FollowsTheConfiguredSignals) {
  const std::string error = "error[rank_lost] launch: interrupted by a signal";
  struct Case {
    std::string named, ranks;
    int sent, status;
  };
  for (const Case& one :
       {Case{"SIGUSR1", "2", SIGUSR1, 0}, Case{"[usr2, 10]", "1", SIGUSR1, 0},
        Case{"SIGUSR1", "1", SIGHUP, 130}, Case{"SIGUSR1", "2", SIGTERM, 1}, Case{"SIGUSR1", "1", SIGTERM, 1},
        Case{"null", "2", SIGINT, 1}, Case{"null", "1", SIGINT, 1}}) {
    const TrainingFiles files;
    Started run(plus(
        files.train("run", {"--nproc-per-node", one.ranks, "--step_scheduler.preemption_signal", one.named}),
        kLong));
    ASSERT_TRUE(under_way(files));
    const std::vector<pid_t> ranks = run.children();
    kill(run.pid(), one.sent);
    const Outcome outcome = run.wait();
    EXPECT_EQ(outcome.status, one.status) << one.named << outcome.error;
    EXPECT_EQ(checkpoints(files), one.status == 1 ? 0u : 1u) << one.named;
    if (one.status == 1) {
      EXPECT_THAT(outcome.error, HasSubstr(error)) << one.named;
    }
    for (const pid_t rank : ranks) EXPECT_FALSE(is_alive(rank));
  }
}

// The sender of SIGTERM determines the status: a user whose shell continues with the next run, or a
// scheduler.
TEST(Stop, EndsWithTheStatusThatItsSenderExpects) {
  struct Case {
    Words more, environment;
    int status;
  };
  const Words scheduler = {"--step_scheduler.preemption_sender", "scheduler"},
              person = {"--step_scheduler.preemption_sender", "person"};
  const Words alone = plus(place(0, 1), {"LOCAL_RANK=0"});
  for (const Case& one : {Case{scheduler, {}, 0}, Case{plus(scheduler, {"--nproc-per-node", "2"}), {}, 0},
                          Case{person, alone, 143}, Case{{}, alone, 0}, Case{{}, {"SLURM_JOB_ID=7"}, 0}}) {
    const TrainingFiles files;
    Started run(plus(files.train("run", one.more), kLong), one.environment);
    ASSERT_TRUE(under_way(files));
    kill(run.pid(), SIGTERM);
    const Outcome outcome = run.wait();
    EXPECT_EQ(outcome.status, one.status) << outcome.error;
    EXPECT_EQ(checkpoints(files), 1u);
  }
}

// Ranks of torchrun, srun or mpirun: each is a separate program, with its own signals.
class Placed {
 public:
  Placed(const Words& words, int rank, int ranks) : run_(words, place(rank, ranks)) {}

  Started& run() { return run_; }
  // Returns whether a thread receives signals yet. Linux reports caught signals and those that the first
  // thread blocks. That thread blocks all signals for a moment whenever it starts a thread.
  bool listens() const {
    std::ifstream status("/proc/" + std::to_string(run_.pid()) + "/status");
    bool is_blocked = false, is_caught = false;
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("SigBlk:")) is_blocked = has_sigterm(line);
      if (line.starts_with("SigCgt:")) is_caught = has_sigterm(line);
    }
    return is_blocked && is_caught;
  }

 private:
  static bool has_sigterm(const std::string& line) {
    return (std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1)) & 1;
  }

  Started run_;
};

TEST(StopUnderALauncher, IsAgreedOnWhenOneRankIsSignalled) {
  const TrainingFiles files;
  std::vector<std::unique_ptr<Placed>> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.push_back(std::make_unique<Placed>(plus(files.train("run"), kLong), rank, 2));
  ASSERT_TRUE(under_way(files));
  kill(ranks[1]->run().pid(), SIGTERM);
  for (auto& rank : ranks) {
    const Outcome outcome = rank->run().wait();
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    if (rank != ranks.front()) continue;
    EXPECT_GT(step_of(outcome.out), 2) << outcome.out;
  }
  EXPECT_EQ(checkpoints(files), 1u);
}

TEST(RefusedCommandLine, EndsTheOtherRanks) {
  const TrainingFiles files;
  Placed first(files.train("run"), 0, 2), second(plus(files.train("run"), {"--nope"}), 1, 2);
  const Outcome outcome = first.run().wait();
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error, HasSubstr("The following argument was not expected: --nope"));
  EXPECT_EQ(second.run().wait().status, 2);
}

TEST(StopUnderALauncher, EndsAllRanksBeforeTheFirstStep) {
  const TrainingFiles files;
  const Words words = plus(files.train("run"), kLong);
  Placed first(words, 0, 2);
  ASSERT_TRUE(eventually([&] { return first.listens(); }));
  kill(first.run().pid(), SIGTERM);
  Placed second(words, 1, 2);
  const Outcome outcome = first.run().wait();
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  const Outcome other = second.run().wait();
  EXPECT_EQ(other.status, 0) << other.error;
  EXPECT_THAT(outcome.out,
              HasSubstr("stopped by SIGTERM before the first step: there is nothing to save; run "
                        "the same command to start again"));
  EXPECT_EQ(column(files.path("run/training.jsonl"), "step").size(), 0u);
}

}  // namespace
}  // namespace flow
