// Probes and replies between the UDP sockets of two ranks.
#include "lib/transport/liveness/probe_socket.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "transport/child_process.h"

namespace heddle::mesh {
namespace {

using tests::eventually;

// Probes and replies that a socket has received.
struct Received {
  std::vector<int> askers;
  std::vector<std::string> answers;

  void read_from(const ProbeSocket& socket) {
    socket.receive(
        [&](int rank) {
          askers.push_back(rank);
          return "answer to " + std::to_string(rank);
        },
        [&](const std::string& text) { answers.push_back(text); });
  }
};

void expect_answer(const std::string& address) {
  const ProbeSocket asking(address), asked(address);
  if (address != "127.0.0.1" && asking.contact().empty()) GTEST_SKIP() << "no address " << address;
  asking.ask(asked.contact(), 3);
  Received there, here;
  ASSERT_TRUE(eventually([&] { return there.read_from(asked), !there.askers.empty(); }));
  ASSERT_TRUE(eventually([&] { return here.read_from(asking), !here.answers.empty(); }));
  EXPECT_EQ(there.askers, std::vector<int>{3});
  EXPECT_EQ(here.answers, std::vector<std::string>{"answer to 3"});
}

TEST(ProbeSocket, ReceivesTheAnswerToItsQuestion) {
  expect_answer("127.0.0.1");
}

TEST(ProbeSocket, ReceivesTheAnswerToItsQuestionOverIPv6) {
  expect_answer("::1");
}

TEST(ProbeSocket, DiscardsAQuestionWithAnotherNumber) {
  const ProbeSocket asking("127.0.0.1"), asked("127.0.0.1");
  const std::string port = asked.contact().substr(0, asked.contact().find('/'));
  asking.ask(port + "/12345/127.0.0.1", 3);
  asking.ask(port + "/words/127.0.0.1", 3);
  asking.ask(asked.contact(), 4);
  Received received;
  ASSERT_TRUE(eventually([&] { return received.read_from(asked), !received.askers.empty(); }));
  EXPECT_EQ(received.askers, std::vector<int>{4});
}

TEST(ProbeSocket, IsNotOpenedWithoutAnAddress) {
  const ProbeSocket none(""), name("a name"), elsewhere("203.0.113.9");
  EXPECT_EQ(none.contact(), "");
  EXPECT_EQ(name.contact(), "");
  EXPECT_EQ(elsewhere.contact(), "");
  none.ask("1/2/127.0.0.1", 0);
  Received().read_from(none);
}

TEST(ProbeAddress, IsThatOfTheInterfaceToTheHost) {
  EXPECT_EQ(address_towards("127.0.0.1", 29500), "127.0.0.1");
}

}  // namespace
}  // namespace heddle::mesh
