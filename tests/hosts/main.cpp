// Runs the tests on hosts made of namespaces, or skips all of them with the reason.
#include <gtest/gtest.h>

#include <exception>

#include "cluster.h"

namespace {

class Namespaces : public ::testing::Environment {
 public:
  void SetUp() override {
    try {
      hosts::become_root_of_namespaces();
      const hosts::TwoHosts probe;
    } catch (const std::exception& error) {
      GTEST_SKIP() << "no hosts on this machine: " << error.what();
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::AddGlobalTestEnvironment(new Namespaces);
  return RUN_ALL_TESTS();
}
