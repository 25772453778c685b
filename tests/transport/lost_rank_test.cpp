// A rank is killed: every other rank exits within ten seconds with an error that names the rank and the
// collective, and no process is left behind.
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <limits>
#include <string>
#include <tuple>

#include "heddle/base/error.h"
#include "heddle/transport/join.h"
#include "tests/main/with_all.h"
#include "transport/children.h"

namespace heddle {
namespace {

HEDDLE_WITH_ALL("Sizes/LostRank*:Transports/*");

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using tests::everyone;
using tests::Known;
using tests::run_ranks;

// Runs collectives. After five rounds the victim dies or stops in the middle of one.
std::string fall(Rendezvous& rendezvous, int victim, int how) {
  auto group = rendezvous.group("dp_shard", everyone(rendezvous));
  for (int round = 0;; ++round) {
    auto value = at::ones({100000});
    auto work = group->all_reduce(value);
    if (rendezvous.rank() == victim && round == 5) ::kill(::getpid(), how);
    work->wait();
  }
}

const Known kLastDies("last_dies", [](Rendezvous& rendezvous) {
  return fall(rendezvous, rendezvous.world_size() - 1, SIGKILL);
});
const Known kFirstDies("first_dies", [](Rendezvous& rendezvous) { return fall(rendezvous, 0, SIGKILL); });
const Known kLastStops("last_stops", [](Rendezvous& rendezvous) {
  return fall(rendezvous, rendezvous.world_size() - 1, SIGSTOP);
});
// Rank 0 stops right after the rendezvous, before the other watchdogs have seen its heartbeat.
const Known kFirstStopsAtOnce("first_stops_at_once", [](Rendezvous& rendezvous) {
  if (rendezvous.rank() == 0) ::kill(::getpid(), SIGSTOP);
  auto group = rendezvous.group("dp_shard", everyone(rendezvous));
  auto value = at::ones({100000});
  group->all_reduce(value)->wait();
  return std::string("done");
});
const Known kFirstStops("first_stops", [](Rendezvous& rendezvous) { return fall(rendezvous, 0, SIGSTOP); });

// Rank 0 waits for rank 1 on one axis, rank 1 for rank 2 on another axis. Rank 2, no peer of rank 0, dies.
const Known kChain("chain", [](Rendezvous& rendezvous) {
  const bool low = rendezvous.rank() < 2;
  auto near = low ? rendezvous.group("tp", std::vector<int>{0, 1}) : nullptr;
  auto far = rendezvous.rank() > 0 ? rendezvous.group("pp", std::vector<int>{1, 2}) : nullptr;
  if (rendezvous.rank() == 2) {
    far->send(at::ones({2}), 0, 0)->wait();
    ::kill(::getpid(), SIGKILL);
  }
  if (rendezvous.rank() == 1) {
    far->receive(at::empty({2}), 1, 0)->wait();
    far->receive(at::empty({2}), 1, 1)->wait();
  }
  near->receive(at::empty({2}), 1, 7)->wait();
  return std::string("done");
});

// All other ranks compute when rank 1 dies.
const Known kBusy("busy", [](Rendezvous& rendezvous) {
  auto group = rendezvous.group("dp", everyone(rendezvous));
  auto value = at::ones({3});
  group->all_reduce(value)->wait();
  if (rendezvous.rank() == 1) ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
  return std::string("done");
});

const Known kThrows("throws", [](Rendezvous& rendezvous) {
  auto group = rendezvous.group("dp", everyone(rendezvous));
  auto value = at::ones({3});
  group->all_reduce(value)->wait();
  if (rendezvous.rank() == 1) {
    rendezvous.abandon("no space left on device");
    throw Error(ErrorCode::io, "model.safetensors", "no space left on device");
  }
  group->all_reduce(value)->wait();
  return std::string("done");
});

// Rank 1 exits before the rendezvous.
const Known kNeverJoins("silent_exit", [](Rendezvous& rendezvous) {
  auto group = rendezvous.group("dp", everyone(rendezvous));
  if (rendezvous.rank() == 1) ::_exit(1);
  auto value = at::ones({3});
  group->all_reduce(value)->wait();
  return std::string("done");
});

void expect_named(const tests::RunOutcome& run, int ranks, int lost, const std::string& waited) {
  SCOPED_TRACE(run.err);
  EXPECT_EQ(run.status, 1);
  EXPECT_FALSE(run.left_behind);
  EXPECT_LT(run.time.count(), 60.0);  // bounded, but not by the ten seconds of an idle machine
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == lost) continue;
    EXPECT_THAT(run.said.at(rank), HasSubstr("error[rank_lost] mesh: rank " + std::to_string(lost) + " "));
    EXPECT_THAT(run.said.at(rank), HasSubstr(waited));
    EXPECT_THAT(run.said.at(rank),
                HasSubstr("hint: see the output of rank " + std::to_string(lost) + " for the cause"));
  }
}

struct Transport {
  std::string name;
  size_t shared_memory;
};

const Transport kTransports[] = {{"SharedMemory", std::numeric_limits<size_t>::max()}, {"Gloo", 0}};

class LostRank : public ::testing::TestWithParam<std::tuple<Transport, int>> {
 protected:
  int ranks() const { return std::get<1>(GetParam()); }
  tests::RunOutcome run(const std::string& body) const {
    return run_ranks(body, ranks(), {.shared_memory = std::get<0>(GetParam()).shared_memory});
  }
};

TEST_P(LostRank, KilledInACollectiveIsNamedByEverySurvivor) {
  const auto outcome = run("last_dies");
  expect_named(outcome, ranks(), ranks() - 1, "; this rank waited for it in all_reduce on dp_shard");
  EXPECT_THAT(outcome.err, HasSubstr("error[rank_lost] launch: rank " + std::to_string(ranks() - 1) +
                                     " was killed by signal 9 (Killed)"));
}

TEST_P(LostRank, RankZeroIsNamedAlthoughTheStoreDiesWithIt) {
  expect_named(run("first_dies"), ranks(), 0, "; this rank waited for it in all_reduce on dp_shard");
}

INSTANTIATE_TEST_SUITE_P(Sizes, LostRank,
                         ::testing::Combine(::testing::ValuesIn(kTransports), ::testing::Values(2, 3, 4)),
                         [](const auto& given) {
                           return std::get<0>(given.param).name + std::to_string(std::get<1>(given.param));
                         });

class LostRanks : public ::testing::TestWithParam<Transport> {
 protected:
  tests::RunOutcome run(const std::string& body, int ranks) const {
    return run_ranks(body, ranks, {.shared_memory = GetParam().shared_memory});
  }
  // Checks a stopped rank, which never exits by itself. The other ranks report the rank and its state.
  void expect_stopped(const std::string& body, int stopped) const {
    const auto outcome = run_ranks(body, 3,
                                   {.timeout = std::chrono::seconds(5),
                                    .shared_memory = GetParam().shared_memory,
                                    .patience = std::chrono::seconds(4)});
    SCOPED_TRACE(outcome.err);
    const std::string name = "rank " + std::to_string(stopped);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_FALSE(outcome.left_behind);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == stopped) continue;
      EXPECT_THAT(
          outcome.said.at(rank),
          AnyOf(ContainsRegex("error.timeout. mesh: all_reduce on dp_shard did not end in .*; " + name +
                              " did not come .stopped by a signal, state T."),
                ContainsRegex("error.rank_lost. mesh: " + name +
                              " is alive but did not come to all_reduce on dp_shard in .* s "
                              ".stopped by a signal, state T."),
                ContainsRegex("error.rank_lost. mesh: rank 0 was lost: its store has not answered for .* s "
                              ".stopped by a signal, state T.")));
    }
    EXPECT_THAT(outcome.err,
                HasSubstr("error[rank_lost] launch: " + name + " did not exit by itself and was killed"));
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, LostRanks, ::testing::ValuesIn(kTransports),
                         [](const auto& given) { return given.param.name; });

TEST_P(LostRanks, NamesAStoppedRankAfterTheTimeout) {
  expect_stopped("last_stops", 2);
}

TEST_P(LostRanks, NamesAStoppedRankZeroAfterTheTimeout) {
  expect_stopped("first_stops", 0);
}

TEST_P(LostRanks, NamesRankZeroThatStopsAtOnceAfterTheTimeout) {
  expect_stopped("first_stops_at_once", 0);
}

TEST_P(LostRanks, IsNamedByARankThatNeverTalksToIt) {
  expect_named(run("chain", 3), 3, 2, "; this rank waited for it in receive on ");
}

TEST_P(LostRanks, RanksThatComputeAreEndedToo) {
  expect_named(run("busy", 3), 3, 1, "");
}

TEST_P(LostRanks, ReportTheReasonOfAFailedRank) {
  const auto outcome = run("throws", 3);
  expect_named(outcome, 3, 1,
               "rank 1 failed: no space left on device; this rank waited for it in all_reduce on dp");
  EXPECT_THAT(outcome.err, HasSubstr("error[io] model.safetensors: no space left on device"));
}

TEST_P(LostRanks, NamesARankThatExitsSilently) {
  expect_named(run("silent_exit", 2), 2, 1, "; this rank waited for it in all_reduce on dp");
}

}  // namespace
}  // namespace heddle
