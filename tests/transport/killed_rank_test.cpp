// Kills a rank at random moments. Every other rank ends with the error, and no process or file is left
// behind. HEDDLE_KILLS sets the number of runs per communicator (5), HEDDLE_KILL_SEED the first seed (1):
//   HEDDLE_KILLS=200 heddle_core_tests --gtest_filter='*KilledAtRandom*'
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#include "heddle/transport/join.h"
#include "tests/main/with_all.h"
#include "transport/children.h"

namespace heddle {
namespace {

HEDDLE_WITH_ALL("Transports/*");

using ::testing::HasSubstr;
using tests::Known;
using tests::run_ranks;

constexpr int kRanks = 3;

int number(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

// Random choices of one run, equal on all ranks.
struct Moment {
  explicit Moment(int seed) : random(static_cast<unsigned>(seed)) {
    victim = static_cast<int>(random() % kRanks);
    after = std::chrono::microseconds(random() % 400000);
  }
  std::mt19937 random;
  int victim = 0;
  std::chrono::microseconds after{};
};

// One round: concurrent collectives of random sizes on two groups, and a ring of messages.
void take_turn(Rendezvous& rendezvous, Communicator& world, Communicator* pair, std::mt19937& random) {
  const auto length = [&] { return static_cast<int64_t>(1 << (random() % 21)) + 3; };
  auto sum = at::ones({length()}), part = at::ones({length()});
  auto whole = at::empty({part.numel() * kRanks}), sent = at::ones({length()});
  auto got = at::empty_like(sent), small = at::ones({7});
  auto first = world.all_reduce(sum), second = world.all_gather(whole, part);
  if (pair != nullptr) pair->all_reduce(small, Reduce::max)->wait();
  auto receive = world.receive(got, (rendezvous.rank() + kRanks - 1) % kRanks, 4);
  auto send = world.send(sent, (rendezvous.rank() + 1) % kRanks, 4);
  second->wait(), first->wait(), receive->wait(), send->wait();
}

const Known kKilled("killed_at_random", [](Rendezvous& rendezvous) {
  Moment moment(number("HEDDLE_KILL_MOMENT", 1));
  if (rendezvous.rank() == moment.victim) {
    std::thread([after = moment.after] {
      std::this_thread::sleep_for(after);
      ::kill(::getpid(), SIGKILL);
    }).detach();
  }
  const std::vector<int> all = {0, 1, 2}, two = {0, 1};
  auto world = rendezvous.group("world", all);
  auto pair = rendezvous.rank() < 2 ? rendezvous.group("pair", two) : nullptr;
  for (;;) take_turn(rendezvous, *world, pair.get(), moment.random);
  return std::string("done");
});

std::vector<std::string> shared_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (!entry.is_directory()) names.push_back(entry.path().string());  // directories belong to other tests
  std::erase_if(names, [](const std::string& name) { return name.find("heddle") == std::string::npos; });
  return names;
}

class KilledAtRandom : public ::testing::TestWithParam<size_t> {};

TEST_P(KilledAtRandom, EndsEveryOtherRankAndLeavesNothing) {
  const int first = number("HEDDLE_KILL_SEED", 1);
  double longest = 0;
  for (int kill = 0; kill < number("HEDDLE_KILLS", 5); ++kill) {
    const Moment moment(first + kill);
    ::setenv("HEDDLE_KILL_MOMENT", std::to_string(first + kill).c_str(), 1);
    const auto run = run_ranks("killed_at_random", kRanks, {.shared_memory = GetParam()});
    SCOPED_TRACE("moment " + std::to_string(first + kill) + ": rank " + std::to_string(moment.victim) +
                 " after " + std::to_string(moment.after.count()) + " us\n" + run.err);
    EXPECT_EQ(run.status, 1);
    EXPECT_FALSE(run.left_behind);
    EXPECT_TRUE(shared_names().empty());
    const std::chrono::duration<double> before = moment.after;
    longest = std::max(longest, (run.time - before).count());
    EXPECT_LT(longest, 60.0);  // bounded, but not by the ten seconds of an idle machine
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == moment.victim) continue;
      EXPECT_THAT(run.said.at(rank),
                  HasSubstr("error[rank_lost] mesh: rank " + std::to_string(moment.victim) + " "));
    }
    if (HasFailure()) break;
  }
  ::unsetenv("HEDDLE_KILL_MOMENT");
  RecordProperty("longest_seconds", std::to_string(longest));
}

INSTANTIATE_TEST_SUITE_P(Transports, KilledAtRandom,
                         ::testing::Values(std::numeric_limits<size_t>::max(), size_t{0}),
                         [](const auto& given) {
                           return given.param == 0 ? std::string("Gloo") : std::string("SharedMemory");
                         });

}  // namespace
}  // namespace heddle
