// Runs the tests of one executable; or, as a child of such a test, the ranks that it asks for.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace heddle::tests {
// Defined where tests start this program again as ranks (tests/transport/children.cpp).
int be_child(const std::string& body) __attribute__((weak));
}  // namespace heddle::tests

int main(int argc, char** argv) {
  const char* body = std::getenv("HEDDLE_TEST_CHILD");
  if (body != nullptr && heddle::tests::be_child != nullptr) return heddle::tests::be_child(body);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
