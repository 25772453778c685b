// Regular expressions on names.
#include "core/base/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using text::Pattern;

TEST(Pattern, FindsAnywhereOrMatchesTheWhole) {
  const Pattern pattern("layers\\.[0-9]+");
  EXPECT_TRUE(pattern.found_in("model.layers.12.weight"));
  EXPECT_FALSE(pattern.found_in("model.norm.weight"));
  EXPECT_THAT(pattern.match("model.layers.12"), IsEmpty());
  EXPECT_THAT(pattern.match("layers.12"), ElementsAre("layers.12"));
}

TEST(Pattern, ReturnsGroupsIncludingEmptyOnes) {
  const Pattern pattern("(.+)-([0-9]+)(\\.txt)?");
  EXPECT_THAT(pattern.match("a-b-07.txt"), ElementsAre("a-b-07.txt", "a-b", "07", ".txt"));
  EXPECT_THAT(pattern.match("a-7"), ElementsAre("a-7", "a", "7", ""));
}

TEST(Pattern, RefusesAWrongExpressionWithItsPlace) {
  EXPECT_THAT(tests::thrown_by([&] { Pattern("a(b", "run.yaml:3: optimizer.pattern"); }),
              ::testing::AllOf(HasSubstr("error[config]"), HasSubstr("run.yaml:3: optimizer.pattern"),
                               HasSubstr("not a regular expression: 'a(b'")));
}

// std::regex would overflow the stack.
TEST(Pattern, RefusesALongExpression) {
  for (const char letter : {'x', '('}) {
    EXPECT_EQ(tests::thrown_by(
                  [&] { Pattern(std::string(2'000'000, letter), "run.yaml:3 freeze_config.patterns"); }),
              "error[config] run.yaml:3 freeze_config.patterns: a regular expression has at most 4096 "
              "characters, got '" +
                  std::string(200, letter) + "... (2000000 bytes)'");
  }
  EXPECT_TRUE(Pattern(std::string(4096, 'x')).found_in(std::string(5000, 'x')));
  EXPECT_TRUE(Pattern(std::string(2047, '(') + "ab" + std::string(2047, ')')).found_in("ab"));
}

}  // namespace
}  // namespace heddle
