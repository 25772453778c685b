// Nesting depth of JSON.
#include "core/base/nesting.h"

#include <gtest/gtest.h>

#include <string>

namespace heddle {
namespace {

using text::nests_deeper;

TEST(Nesting, CountsBracketsOutsideStrings) {
  EXPECT_TRUE(nests_deeper("[[[", 2));
  EXPECT_FALSE(nests_deeper("[[[", 3));
  EXPECT_FALSE(nests_deeper("[[],[],[]]", 2));
  EXPECT_TRUE(nests_deeper(R"({"a":[{"b":1}]})", 2));
  EXPECT_FALSE(nests_deeper(R"({"[[[[":"{{\"{{"})", 1));
  EXPECT_TRUE(nests_deeper(R"({"\\":[1]})", 1));
  EXPECT_FALSE(nests_deeper("", 0));
  EXPECT_FALSE(nests_deeper("]]]]", 0));
}

TEST(Nesting, DoesNotRecurse) {
  EXPECT_TRUE(nests_deeper(std::string(10'000'000, '['), text::kDeepest));
}

}  // namespace
}  // namespace heddle
