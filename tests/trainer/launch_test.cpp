// The local launcher: exit statuses, signals, and cleanup of processes.
#include "trainer/cli/launch/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "heddle/base/error.h"
#include "transport/children.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;
using tests::KnownPlain;
using tests::run_ranks;

const KnownPlain kPlaces("places", [](const RankPlace& place) {
  tests::say(place.rank, std::to_string(place.rank) + "/" + std::to_string(place.world_size) + " " +
                             std::to_string(place.local_rank) + "/" + std::to_string(place.local_world_size) +
                             " " + place.launcher + (place.listen_fd >= 0 ? " serves" : ""));
  return 0;
});

TEST(Launch, SetsTheRankVariables) {
  const auto run = run_ranks("places", 3);
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.said.at(0), "0/3 0/3 heddle serves");
  EXPECT_EQ(run.said.at(2), "2/3 2/3 heddle");
  EXPECT_EQ(run.err, "");
}

const KnownPlain kStatusTwo("status_two", [](const RankPlace& place) { return place.rank == 1 ? 2 : 0; });
const KnownPlain kStatusOdd("status_odd", [](const RankPlace& place) { return place.rank == 1 ? 77 : 0; });
const KnownPlain kThrow("throw_config", [](const RankPlace& place) -> int {
  if (place.rank == 0) throw Error(ErrorCode::config, "run.yaml:3 seed", "is 'x'", "give a number");
  return 0;
});
const KnownPlain kThrowOther("throw_other",
                             [](const RankPlace&) -> int { throw std::runtime_error("split\nlines"); });

TEST(Launch, ReturnsTheStatusOfTheFailedRank) {
  EXPECT_EQ(run_ranks("status_two", 3).status, 2);
  EXPECT_EQ(run_ranks("status_odd", 3).status, 1);
}

// Rank 1 fails first, but because of rank 0, which finds invalid input.
const KnownPlain kBoth("one_then_two", [](const RankPlace& place) {
  if (place.rank == 0) ::usleep(300000);
  return place.rank == 0 ? 2 : 1;
});

TEST(Launch, PrefersBadInputToTheFailuresThatItCauses) {
  EXPECT_EQ(run_ranks("one_then_two", 2).status, 2);
  for (const auto& [one, other, both] : {std::tuple{0, 143, 143}, {143, 1, 1}, {1, 2, 2}, {2, 130, 2}}) {
    EXPECT_EQ(launch::worse(one, other), both);
    EXPECT_EQ(launch::worse(other, one), both);
  }
}

TEST(Launch, PrintsAnErrorOfARank) {
  const auto run = run_ranks("throw_config", 2);
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(run.err, "error[config] run.yaml:3 seed: is 'x'\n  hint: give a number\n");
  const auto other = run_ranks("throw_other", 1);
  EXPECT_EQ(other.status, 1);
  EXPECT_EQ(other.err, "error[internal] heddle: split\nlines\n");
}

const KnownPlain kThrowOwn("throw_own", [](const RankPlace& place) -> int {
  throw Error(ErrorCode::input, "data.bin", "rank " + std::to_string(place.rank));
});

TEST(Launch, PrintsAnErrorOfSeveralRanksOnce) {
  EXPECT_EQ(run_ranks("throw_other", 4).err, "error[internal] heddle: split\nlines\n");
  const std::string own = run_ranks("throw_own", 3).err;
  for (const char* rank : {"0", "1", "2"})
    EXPECT_THAT(own, HasSubstr("error[input] data.bin: rank " + std::string(rank) + "\n"));
}

const KnownPlain kSegfault("abort", [](const RankPlace& place) {
  if (place.rank == 1) ::raise(SIGKILL);
  return 0;
});

TEST(Launch, NamesARankAndTheSignalThatKilledIt) {
  const auto run = run_ranks("abort", 2);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err,
              HasSubstr("error[rank_lost] launch: rank 1 was killed by signal 9 (Killed)\n  hint: "));
}

const KnownPlain kUnfinished("unfinished", [](const RankPlace& place) {
  if (place.rank == 1) ::_exit(0);
  return 0;
});

TEST(Launch, CountsARankThatLeavesEarlyAsLost) {
  const auto run = run_ranks("unfinished", 2);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("error[rank_lost] launch: rank 1 exited with status 0 before its work was "
                                 "done\n  hint: a plugin or a library called _exit(); "));
}

const KnownPlain kForever("forever", [](const RankPlace& place) -> int {
  tests::say(place.rank, "ready");
  for (;;) ::pause();
});
const KnownPlain kDeaf("deaf", [](const RankPlace& place) -> int {
  ::signal(SIGTERM, SIG_IGN);
  tests::say(place.rank, "ready");
  for (;;) ::pause();
});
const KnownPlain kOneLeaves("one_fails", [](const RankPlace& place) -> int {
  if (place.rank == 0) return 1;
  for (;;) ::pause();
});

class Signals : public ::testing::TestWithParam<int> {};

TEST_P(Signals, EndEveryRankWithStatusOne) {
  const auto run = run_ranks("forever", 3, {.signal = GetParam()});
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.err, "error[rank_lost] launch: interrupted by a signal\n");
  EXPECT_FALSE(run.left_behind);
}

INSTANTIATE_TEST_SUITE_P(Both, Signals, ::testing::Values(SIGINT, SIGTERM));

TEST(Launch, KillsRanksThatIgnoreASignal) {
  const auto run = run_ranks("deaf", 2, {.signal = SIGINT});
  EXPECT_EQ(run.status, 1);
  EXPECT_FALSE(run.left_behind);
}

TEST(Launch, EndsTheRanksWhenTheLauncherIsKilled) {
  const auto run = run_ranks("forever", 3, {.signal = SIGKILL});
  EXPECT_EQ(run.status, -SIGKILL);
  EXPECT_FALSE(run.left_behind);
}

TEST(Launch, KillsAndNamesRanksThatDoNotEndAfterAFailure) {
  const auto run = run_ranks("one_fails", 3, {.patience = std::chrono::milliseconds(500)});
  EXPECT_EQ(run.status, 1);
  EXPECT_FALSE(run.left_behind);
  EXPECT_EQ(run.err, "error[rank_lost] launch: rank 1, 2 did not exit by itself and was killed\n");
}

}  // namespace
}  // namespace heddle
