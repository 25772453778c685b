// Runs the tests on namespace hosts, or skips all of them with the reason.
#include <gtest/gtest.h>

#include <exception>
#include <string>

#include "cluster.h"

namespace {

// Returns the reason why this process cannot create hosts, or "".
std::string failure_of_hosts() {
  try {
    const hosts::TwoHosts probe;
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

class Namespaces : public ::testing::Environment {
 public:
  void SetUp() override {
    if (failure_of_hosts().empty()) return;
    try {
      hosts::continue_in_user_namespace();
    } catch (const std::exception& error) {
      GTEST_SKIP() << "no hosts on this machine: " << error.what();
    }
    const std::string failure = failure_of_hosts();
    if (!failure.empty()) GTEST_SKIP() << "no hosts on this machine: " << failure;
  }
};

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::AddGlobalTestEnvironment(new Namespaces);
  return RUN_ALL_TESTS();
}
