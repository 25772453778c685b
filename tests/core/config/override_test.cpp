// Command-line values that override values of the file.
#include <gtest/gtest.h>

#include "heddle/config/node.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

std::string after(const std::string& yaml, const std::string& key, const std::string& value) {
  return config::to_json(config::with_override(config::read_text(yaml, "f"), key, value));
}

TEST(Override, ReplacesOneValueInPlace) {
  EXPECT_EQ(after("{a: {b: 1, c: 2}, d: 3}", "a.b", "5"), R"({"a": {"b": 5, "c": 2}, "d": 3})");
}

TEST(Override, CreatesMissingSections) {
  EXPECT_EQ(after("{d: 3}", "a.b.c", "x"), R"({"d": 3, "a": {"b": {"c": "x"}}})");
  EXPECT_EQ(after("", "a.b", "1"), R"({"a": {"b": 1}})");
  EXPECT_EQ(after("{a: null}", "a.b", "1"), R"({"a": {"b": 1}})");
}

TEST(Override, ReadsItsValueAsYaml) {
  EXPECT_EQ(after("{}", "a.b", "none"), R"({"a": {"b": null}})");
  EXPECT_EQ(after("{}", "a.b", "yes"), R"({"a": {"b": true}})");
  EXPECT_EQ(after("{}", "a.b", "[1, {c: 0x2}]"), R"({"a": {"b": [1, {"c": 2}]}})");
  EXPECT_EQ(after("{}", "a.b", ""), R"({"a": {"b": null}})");
  EXPECT_EQ(after("{}", "a", "1e-3"), R"({"a": 0.001})");
}

TEST(Override, IsLocatedOnTheCommandLine) {
  const Node root = config::with_override(config::read_text("{}", "f"), "a.b", "[x]");
  EXPECT_EQ(root.find("a")->find("b")->where(), "--a.b");
  EXPECT_EQ(root.find("a")->find("b")->items()[0].where(), "--a.b a.b[0]");
}

TEST(Override, RefusesAKeyBelowAValue) {
  EXPECT_EQ(tests::thrown_by([] { after("{a: 1}", "a.b", "2"); }),
            "error[usage] --a.b: 'a' is 1, not a section");
}

TEST(Override, RefusesAKeyWithEmptyParts) {
  for (const char* key : {"", ".a", "a.", "a..b"})
    EXPECT_EQ(tests::thrown_by([&] { after("{}", key, "2"); }),
              "error[usage] --" + std::string(key) + ": not a key\n  hint: write --SECTION.KEY VALUE");
}

TEST(Override, RefusesAKeyOfTooManyLevels) {
  std::string key = "a";
  for (int i = 0; i < 100; ++i) key += ".a";
  EXPECT_EQ(tests::thrown_by([&] { after("{}", key, "2"); }),
            "error[usage] --: a key of more than 100 levels");
}

TEST(Override, RefusesALongKey) {
  EXPECT_EQ(tests::thrown_by([&] { after("{}", "a." + std::string(2000, 'b'), "2"); }),
            "error[usage] --a." + std::string(78, 'b') +
                "... (2002 bytes): a key of 2002 characters; at most 1000");
}

TEST(Override, RefusesAValueThatIsNotYaml) {
  EXPECT_EQ(tests::thrown_by([] { after("{}", "a.b", "[1"); }).substr(0, 20), "error[config] --a.b:");
}

}  // namespace
}  // namespace heddle
