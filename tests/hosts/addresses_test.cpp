// Addresses that ranks on two hosts publish for each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "cluster.h"
#include "run_folder.h"

namespace hosts {
namespace {

struct Network {
  const char* name;
  ClusterOptions options;
  const char* own_address;  // what a host's own name resolves to; empty: its address if names are known
  const char* setup;        // shell commands on each host
  const char* master;       // MASTER_ADDR; empty: the address of the first host
};

void PrintTo(const Network& network, std::ostream* out) {
  *out << network.name;
}

// GLOO_SOCKET_IFNAME is unset on every rank.
const Network kNetworks[] = {
    {"NameThatIsALoopbackAddress", {}, "127.0.1.1", "", ""},
    {"NameThatDoesNotResolve", {.known_names = false}, "", "", ""},
    {"TwoInterfaces",
     {},
     "10.80.0.1",
     "ip link add eth1 type veth peer name eth1-end && ip addr add 10.80.0.1/24 dev eth1 && ip link set eth1 "
     "up && "
     "ip link set eth1-end up",
     ""},
    {"IPv6Alone", {.ipv4 = false}, "", "", ""},
    {"IPv6AloneWithoutNames", {.ipv4 = false, .known_names = false}, "", "", ""},
    {"NameOfTheFirstHost", {}, "", "", "first-host"},
};

class Addresses : public ::testing::TestWithParam<Network> {};

TEST_P(Addresses, LetTheRunTrain) {
  const Network network = GetParam();
  const RunFolder folder;
  Cluster hosts(network.options);
  for (const int host : {0, 1}) {
    if (*network.own_address)
      hosts.write_hosts_file(
          host, "127.0.0.1 localhost\n" + (network.own_address + (" " + hosts.name(host))) + "\n");
    if (*network.master)
      hosts.write_hosts_file(host, "127.0.0.1 localhost\n" + hosts.address(0) + " " + network.master + "\n");
    if (*network.setup) hosts.command(host, network.setup);
  }
  if (*network.master) hosts.set_everywhere("MASTER_ADDR", network.master);
  hosts.train(folder.recipe(), {"--checkpoint.enabled", "false"});
  ASSERT_TRUE(hosts.wait(30)) << hosts.report();
  EXPECT_TRUE(hosts.all_have_status(0)) << hosts.report();
}

TEST(MasterAddress, IsQuestionedWhereRankZeroDoesNotReachItself) {
  const RunFolder folder;
  TwoHosts hosts(1);
  hosts.set_everywhere("MASTER_ADDR", hosts.address(1));
  hosts.train(folder.recipe(), {"--checkpoint.enabled", "false", "--dist_env.timeout_minutes", "0.1"});
  ASSERT_TRUE(hosts.wait(30)) << hosts.report();
  EXPECT_TRUE(hosts.all_have_status(1)) << hosts.report();
  EXPECT_THAT(hosts.errors(0),
              ::testing::HasSubstr(" does not reach itself (is MASTER_ADDR the host of rank 0?)"));
}

INSTANTIATE_TEST_SUITE_P(TwoHosts, Addresses, ::testing::ValuesIn(kNetworks),
                         [](const auto& network) { return network.param.name; });

}  // namespace
}  // namespace hosts
