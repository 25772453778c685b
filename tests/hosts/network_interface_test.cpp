// Network interfaces that GLOO_SOCKET_IFNAME names but no rank can use.
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

TEST(NetworkInterface, IsRefusedIfOnlyItsHostReachesIt) {
  const RunFolder folder;
  TwoHosts hosts;
  hosts.set_everywhere("GLOO_SOCKET_IFNAME", "lo");
  hosts.train(folder.recipe(), {"--checkpoint.enabled", "false"});
  ASSERT_TRUE(hosts.wait(15)) << hosts.report();
  EXPECT_TRUE(hosts.all_have_status(2)) << hosts.report();
  EXPECT_THAT(hosts.errors(0),
              HasSubstr("is 'lo', which other machines cannot reach, and the ranks are on several machines"));
}

}  // namespace
}  // namespace hosts
