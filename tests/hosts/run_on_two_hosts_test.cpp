// A run on two hosts in which ranks or connections are lost, paused or stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <optional>
#include <string>

#include "cluster.h"
#include "quiet.h"
#include "run_folder.h"

namespace hosts {
namespace {

using ::testing::HasSubstr;

// A run with many steps left once it has trained two steps.
class RunOnTwoHosts : public ::testing::Test {
 protected:
  void start(TwoHosts& hosts, const Words& more = {}) const {
    hosts.train(folder_.recipe(),
                folder_.save_in("run", flow::plus({"--step_scheduler.max_steps", "1000000"}, more)));
    ASSERT_TRUE(hosts.reaches_step(2, 60)) << hosts.report();
  }
  // Adds a test failure unless the run trains ten more steps within `limit` seconds.
  static void expect_steps(TwoHosts& hosts, double limit) {
    EXPECT_TRUE(hosts.reaches_step(hosts.steps() + 10, limit)) << hosts.report();
  }
  static bool errors_name(TwoHosts& hosts, int rank, const std::string& lost) {
    return hosts.errors(rank).find(lost) != std::string::npos;
  }

  const RunFolder folder_;
};

TEST_F(RunOnTwoHosts, NamesAKilledRankWithinASecond) {
  TwoHosts hosts;
  start(hosts);
  hosts.signal(3, SIGKILL);
  const auto seconds = hosts.seconds_until(30, [&] {
    return errors_name(hosts, 0, "rank 3") && errors_name(hosts, 1, "rank 3") &&
           errors_name(hosts, 2, "rank 3");
  });
  ASSERT_TRUE(seconds) << hosts.report();
  EXPECT_LE(*seconds, heddle::tests::machine_is_quiet() ? 1.0 : 3.0) << hosts.report();
  ASSERT_TRUE(hosts.wait(10)) << hosts.report();
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(hosts.status(rank), 1) << hosts.report();
}

TEST_F(RunOnTwoHosts, NamesTheHostOfAKilledRank) {
  TwoHosts hosts;
  start(hosts);
  hosts.signal(3, SIGKILL);
  ASSERT_TRUE(hosts.wait(30)) << hosts.report();
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_THAT(hosts.errors(rank), HasSubstr("rank 3 on " + hosts.name(1))) << rank;
}

TEST_F(RunOnTwoHosts, NumbersHostsThatHaveOneName) {
  TwoHosts hosts;
  hosts.command(1, "hostname " + hosts.name(0));
  start(hosts);
  hosts.signal(3, SIGKILL);
  ASSERT_TRUE(hosts.wait(30)) << hosts.report();
  EXPECT_THAT(hosts.errors(0), HasSubstr("rank 3 on " + hosts.name(0) + " (2) "));
}

TEST_F(RunOnTwoHosts, IsSavedWhenOneRankGetsSigterm) {
  TwoHosts hosts;
  start(hosts);
  hosts.signal(3, SIGTERM);
  ASSERT_TRUE(hosts.wait(30)) << hosts.report();
  EXPECT_TRUE(hosts.all_have_status(0)) << hosts.report();  // launchers send SIGTERM before a preemption
  EXPECT_THAT(hosts.output(0) + hosts.errors(0), HasSubstr("stopped by SIGTERM"));
  EXPECT_TRUE(std::filesystem::exists(folder_.path("run/LATEST/step_scheduler.json"))) << hosts.report();
}

TEST_F(RunOnTwoHosts, ContinuesWhenALinkIsDownForEightSeconds) {
  TwoHosts hosts;
  start(hosts);
  hosts.disconnect(1);
  EXPECT_FALSE(hosts.wait(8)) << hosts.report();
  hosts.connect(1);
  expect_steps(hosts, 30);
}

TEST_F(RunOnTwoHosts, ContinuesWhenAHostIsPausedForTwentySeconds) {
  TwoHosts hosts;
  start(hosts);
  hosts.pause(1);
  EXPECT_FALSE(hosts.wait(20)) << hosts.report();
  hosts.resume(1);
  expect_steps(hosts, 20);
}

TEST_F(RunOnTwoHosts, NamesALostHostOnBothSidesAfterTheHeartbeatTime) {
  TwoHosts hosts;
  start(hosts, {"--dist_env.heartbeat_seconds", "4"});
  hosts.disconnect(1);
  EXPECT_TRUE(hosts.wait(15)) << hosts.report();
  for (int rank = 0; rank < hosts.ranks(); ++rank) {
    EXPECT_EQ(hosts.status(rank), 1) << rank;
    EXPECT_THAT(hosts.errors(rank), HasSubstr(hosts.name(1 - hosts.host_of(rank)))) << rank;
  }
}

TEST_F(RunOnTwoHosts, NamesAHostWithoutPowerAfterTheHeartbeatTime) {
  TwoHosts hosts;
  start(hosts, {"--dist_env.heartbeat_seconds", "4"});
  hosts.power_off(1);
  EXPECT_TRUE(hosts.wait(15)) << hosts.report();
  for (const int rank : {0, 1}) {
    EXPECT_EQ(hosts.status(rank), 1) << rank;
    EXPECT_THAT(hosts.errors(rank), HasSubstr(hosts.name(1))) << rank;
  }
}

}  // namespace
}  // namespace hosts
