// Signals at random moments of a run. HEDDLE_SIGNALS sets their number (default: 12).
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <random>
#include <string>
#include <thread>

#include "cluster.h"
#include "flow/training_files.h"
#include "quiet.h"
#include "run_folder.h"

namespace hosts {
namespace {

constexpr size_t kSteps = 30;

int signals_per_world() {
  const char* number = std::getenv("HEDDLE_SIGNALS");
  return (number == nullptr ? 12 : std::atoi(number)) / 3;
}

// A run that signals stop, and that is resumed until it completes.
class SignalledRun {
 public:
  explicit SignalledRun(const ClusterOptions& options) : hosts_(options) {}

  // Trains the reference run, without signals.
  void train_reference() {
    const auto start = std::chrono::steady_clock::now();
    train("reference");
    ASSERT_TRUE(hosts_.wait(60)) << hosts_.report();
    ASSERT_TRUE(hosts_.all_have_status(0)) << hosts_.report();
    duration_ = std::chrono::steady_clock::now() - start;
    ASSERT_EQ(trained_steps("reference"), kSteps);
  }

  // Starts or resumes the run, and sends a signal to all ranks at a random moment.
  void send_at_random_moment(std::mt19937& random) {
    if (trained_steps(name()) == kSteps) ++runs_;
    const std::chrono::duration<double> moment(
        std::uniform_real_distribution(0.0, duration_.count())(random));
    const int number = random() % 2 == 0 ? SIGTERM : SIGINT;
    SCOPED_TRACE(strsignal(number) + (" after " + std::to_string(moment.count()) + " s"));
    train(name());
    std::this_thread::sleep_for(moment);
    for (int rank = 0; rank < hosts_.ranks(); ++rank) hosts_.signal(rank, number);
    ASSERT_TRUE(hosts_.wait(heddle::tests::machine_is_quiet() ? 2 : 5)) << hosts_.report();
    const size_t steps = trained_steps(name());
    for (int rank = 0; rank < hosts_.ranks(); ++rank)
      EXPECT_TRUE(hosts_.status(rank) == 128 + number || (steps == kSteps && hosts_.status(rank) == 0))
          << "rank " << rank << "\n"
          << hosts_.report();
    if (steps > 0) {
      EXPECT_TRUE(is_saved(name(), steps)) << "step " << steps << " was trained and is not saved";
    }
  }

  // Resumes the run without a signal, and compares the result with the reference run.
  void expect_nothing_lost() {
    train(name());
    ASSERT_TRUE(hosts_.wait(60)) << hosts_.report();
    EXPECT_TRUE(hosts_.all_have_status(0)) << hosts_.report();
    EXPECT_EQ(flow::without_clock(metrics(name())), flow::without_clock(metrics("reference")));
  }

 private:
  void train(const std::string& run) {
    hosts_.train(folder_.recipe(), folder_.save_in(run, {"--step_scheduler.max_steps", std::to_string(kSteps),
                                                         "--step_scheduler.ckpt_every_steps", "7",
                                                         "--step_scheduler.preemption_sender", "person"}));
  }
  std::string name() const { return "run" + std::to_string(runs_); }
  std::string metrics(const std::string& run) const { return folder_.path(run + "/training.jsonl"); }
  size_t trained_steps(const std::string& run) const { return flow::column(metrics(run), "step").size(); }
  bool is_saved(const std::string& run, size_t steps) const {
    return std::filesystem::exists(folder_.path(run + "/epoch_0_step_" + std::to_string(steps - 1)));
  }

  const RunFolder folder_;
  Cluster hosts_;
  std::chrono::duration<double> duration_{};
  int runs_ = 0;
};

struct World {
  const char* name;
  int hosts, ranks_per_host;
};

void PrintTo(const World& world, std::ostream* out) {
  *out << world.name;
}

const World kWorlds[] = {{"OneRank", 1, 1}, {"TwoRanks", 2, 1}, {"FourRanks", 2, 2}};

class Signals : public ::testing::TestWithParam<World> {};

TEST_P(Signals, EndTheRunSoonAndLoseNothing) {
  SignalledRun run({.hosts = GetParam().hosts, .ranks_per_host = GetParam().ranks_per_host});
  ASSERT_NO_FATAL_FAILURE(run.train_reference());
  std::mt19937 random(std::random_device{}());
  for (int i = 0; i < signals_per_world(); ++i) ASSERT_NO_FATAL_FAILURE(run.send_at_random_moment(random));
  run.expect_nothing_lost();
}

INSTANTIATE_TEST_SUITE_P(Hosts, Signals, ::testing::ValuesIn(kWorlds),
                         [](const auto& world) { return world.param.name; });

}  // namespace
}  // namespace hosts
