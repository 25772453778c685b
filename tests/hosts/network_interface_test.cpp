// A network interface that GLOO_SOCKET_IFNAME names and no host has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster.h"
#include "run_folder.h"

namespace hosts {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(NetworkInterface, IsRefusedWithTheAvailableOnesIfItDoesNotExist) {
  const RunFolder folder;
  TwoHosts hosts;
  hosts.set_everywhere("GLOO_SOCKET_IFNAME", "eth7");
  hosts.train(folder.recipe(), {"--checkpoint.enabled", "false"});
  ASSERT_TRUE(hosts.wait(15)) << hosts.report();
  EXPECT_TRUE(hosts.all_have_status(2)) << hosts.report();
  for (int rank = 0; rank < hosts.ranks(); ++rank)
    EXPECT_THAT(hosts.errors(rank), AllOf(HasSubstr("GLOO_SOCKET_IFNAME"), HasSubstr("eth7"),
                                          HasSubstr("eth0"), Not(HasSubstr("plugin_failed"))))
        << rank;
}

}  // namespace
}  // namespace hosts
