// Signals that ask a run to save: behavior of the local launcher and of a rank.
#include "trainer/cli/launch/stop_signals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "heddle/mesh/call.h"
#include "heddle/transport/threads.h"
#include "lib/run/loop/stop.h"
#include "trainer/cli/launch/launch.h"
#include "transport/children.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;
using tests::KnownPlain;
using tests::run_ranks;

launch::Stop on_term(bool stepping) {
  StopRequest& request = cli::shared_stop_request();
  request.stepping = stepping;
  return {{SIGTERM}, &request};
}

[[noreturn]] void wait_for_ever() {
  for (;;) ::pause();
}

// The ranks of a launcher inside a rank. They signal that launcher.
int asks_once(const RankPlace& place) {
  if (place.rank == 0) ::kill(::getppid(), SIGTERM);
  wait_for_ever();
}
int asks_again(const RankPlace& place) {
  for (; place.rank == 0; ::usleep(100000)) ::kill(::getppid(), SIGTERM);
  wait_for_ever();
}

// Tells the test how that launcher ended.
int tell(const RankPlace& place, int status) {
  tests::say(place.rank, "status " + std::to_string(status));
  return status;
}

const KnownPlain kEarly("stop_early", [](const RankPlace& place) {
  return tell(place, launch::run(2, asks_once, {}, on_term(false)));
});

TEST(StopSignals, EndTheRanksImmediatelyBeforeTheFirstStep) {
  const auto run = run_ranks("stop_early", 1);
  EXPECT_EQ(run.status, 143);
  EXPECT_EQ(run.said.at(0), "status 143");
  EXPECT_EQ(run.err, "");
  EXPECT_FALSE(run.left_behind);
}

// One rank failed and was collected before the signal. A second request carries its process.
const KnownPlain kStopFailed("stop_failed", [](const RankPlace& place) {
  StopRequest& note = cli::shared_stop_request();
  const auto fails = [&](const RankPlace& inner) -> int {
    if (inner.rank == 0) {
      note.signal = ::getpid();
      return 2;
    }
    while (note.signal == 0 || ::kill(note.signal, 0) == 0) ::usleep(1000);
    ::kill(::getppid(), SIGTERM);
    wait_for_ever();
  };
  return tell(place, launch::run(2, fails, {}, on_term(false)));
});

TEST(StopSignals, DoNotMakeAFailureASuccess) {
  EXPECT_EQ(run_ranks("stop_failed", 1).said.at(0), "status 2");
}

const KnownPlain kSaves("stop_saves", [](const RankPlace& place) {
  const launch::Stop stop = on_term(true);
  const auto saves = [&](const RankPlace& inner) {
    if (inner.rank == 0) ::kill(::getppid(), SIGTERM);
    while (stop.request->signal != SIGTERM) ::usleep(1000);
    return 0;
  };
  return tell(place, launch::run(2, saves, {}, stop));
});

TEST(StopSignals, AreForwardedToAllRanksWithoutATimeout) {
  const auto run = run_ranks("stop_saves", 1);
  EXPECT_EQ(run.said.at(0), "status 0");
  EXPECT_EQ(
      run.err,
      "SIGTERM: the run saves and stops after this step; a second signal stops it at once without saving\n");
}

const KnownPlain kTwice("stop_twice", [](const RankPlace& place) {
  return tell(place, launch::run(2, asks_again, {}, on_term(true)));
});

TEST(StopSignals, EndTheRanksImmediatelyWhenRepeated) {
  const auto run = run_ranks("stop_twice", 1);
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.said.at(0), "status 1");
  EXPECT_THAT(run.err,
              HasSubstr("error[rank_lost] launch: stopped by a second signal; no checkpoint was written"));
  EXPECT_FALSE(run.left_behind);
}

TEST(StopSignals, AreThoseOfTheConfigurationAndTheTerminal) {
  ::signal(SIGHUP, SIG_DFL);  // nohup ignores it
  EXPECT_EQ(cli::stop_signals({}), std::vector<int>{});
  EXPECT_EQ(cli::stop_signals({SIGUSR1}), (std::vector<int>{SIGUSR1, SIGINT, SIGHUP}));
  ::signal(SIGHUP, SIG_IGN);
  EXPECT_EQ(cli::stop_signals({SIGINT, SIGTERM}), (std::vector<int>{SIGINT, SIGTERM}));
  ::signal(SIGHUP, SIG_DFL);
}

TEST(StopSignals, ArePreemptionsByLauncherOrConfiguration) {
  StepSection steps;
  steps.stop_signals.numbers = {SIGTERM, SIGUSR1};
  EXPECT_EQ(cli::preemptions(steps, false), std::vector<int>{SIGUSR1});  // no person sends it
  EXPECT_EQ(cli::preemptions(steps, true), steps.stop_signals.numbers);
  steps.preemption_sender = "person";
  EXPECT_EQ(cli::preemptions(steps, true), std::vector<int>{});
  steps.preemption_sender = "scheduler";
  EXPECT_EQ(cli::preemptions(steps, false), steps.stop_signals.numbers);
}

TEST(StopSignals, HaveTheirStatuses) {
  const launch::Stop stop{{SIGTERM, SIGINT, SIGHUP, SIGUSR1}, nullptr, {SIGUSR1}};
  EXPECT_EQ(stop.status_of(SIGTERM), 143);
  EXPECT_EQ(stop.status_of(SIGINT), 130);
  EXPECT_EQ(stop.status_of(SIGHUP), 130);
  EXPECT_EQ(stop.status_of(SIGUSR1), 0);
}

TEST(StopAgreement, SharesTheSignalOfAnyRank) {
  ThreadWorld::run(3, [](Rendezvous& rendezvous) {
    StopRequest request;
    StopAgreement stop(rendezvous, request);
    EXPECT_EQ(stop.now(), 0);
    stop.begin();
    if (rendezvous.rank() == 1) request.signal = SIGTERM;  // sent before: takes effect in the next call
    EXPECT_EQ(stop.end(), 0);
    if (rendezvous.rank() == 2) request.signal = SIGINT;
    stop.begin();
    EXPECT_EQ(stop.end(), SIGTERM);  // the largest
  });
}

TEST(StopAgreement, AsksItselfOnOneRank) {
  AloneRendezvous rendezvous;
  StopRequest request;
  StopAgreement stop(rendezvous, request);
  EXPECT_EQ(stop.now(), 0);
  request.signal = SIGUSR1;
  EXPECT_EQ(stop.now(), SIGUSR1);
}

}  // namespace
}  // namespace heddle
