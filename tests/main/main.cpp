// Main program of the tests. Runs as a rank if a test started it as one. HEDDLE_TEST_SET=default skips the
// tests of HEDDLE_WITH_ALL, HEDDLE_TEST_SET=more runs only those.
#include "tests/main/with_all.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>

namespace heddle::tests {
// Defined where tests start this program again as ranks (tests/transport/children.cpp).
int be_child(const std::string& body) __attribute__((weak));

namespace {

std::string& with_all() {
  static std::string patterns;
  return patterns;
}

// --gtest_filter has precedence, because a death test restarts this program with one.
void choose_set(const std::string& set) {
  if (::testing::GTEST_FLAG(filter) != "*") return;
  if (set != "default" && set != "more") {
    std::cerr << "HEDDLE_TEST_SET is '" << set << "', not default or more\n";
    std::exit(2);
  }
  ::testing::GTEST_FLAG(filter) = set == "more" ? with_all() : "*-" + with_all();
}

}  // namespace

WithAll::WithAll(const char* patterns) {
  with_all() += (with_all().empty() ? "" : ":") + std::string(patterns);
}

}  // namespace heddle::tests

int main(int argc, char** argv) {
  const char* body = std::getenv("HEDDLE_TEST_CHILD");
  if (body != nullptr && heddle::tests::be_child != nullptr) return heddle::tests::be_child(body);
  ::testing::InitGoogleTest(&argc, argv);
  if (const char* set = std::getenv("HEDDLE_TEST_SET")) heddle::tests::choose_set(set);
  return RUN_ALL_TESTS();
}
