// More than two hosts, and a limited bandwidth.
#include <gtest/gtest.h>

#include "cluster.h"
#include "run_folder.h"

namespace hosts {
namespace {

TEST(Cluster, TrainsOnThreeHostsWithALimitedRate) {
  const RunFolder folder;
  Cluster hosts({.hosts = 3, .ranks_per_host = 1, .rate = "100mbit"});
  for (int host = 0; host < 3; ++host)
    EXPECT_NO_THROW(hosts.command(host, "tc qdisc show dev eth0 | grep -q 'rate 100Mbit'"));
  hosts.train(folder.recipe(), {"--checkpoint.enabled", "false", "--step_scheduler.global_batch_size", "6"});
  ASSERT_TRUE(hosts.wait(30)) << hosts.report();
  EXPECT_TRUE(hosts.all_have_status(0)) << hosts.report();
  EXPECT_EQ(hosts.steps(), 3);
}

}  // namespace
}  // namespace hosts
