// Reading YAML: structure, merges, and refused pitfalls.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "heddle/config/node.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using tests::thrown_by;

std::string json(const std::string& yaml) {
  return config::to_json(config::read_text(yaml, "f"));
}
std::string refusal(const std::string& yaml) {
  return thrown_by([&] { config::read_text(yaml, "f"); });
}

TEST(Read, KeepsTheOrderOfTheFile) {
  EXPECT_EQ(json("b: 1\na: [x, {c: 2}]\n"), R"({"b": 1, "a": ["x", {"c": 2}]})");
}

TEST(Read, ReturnsNullForAnEmptyFile) {
  EXPECT_EQ(json(""), "null");
  EXPECT_EQ(json("# only a comment\n"), "null");
}

TEST(Read, MergesMapsWithPrecedenceOfOwnKeys) {
  EXPECT_EQ(json("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3, e: 4}\n"),
            R"({"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3, "e": 4}})");
}

TEST(Read, PrefersTheFirstOfSeveralMerges) {
  EXPECT_EQ(json("a: &x {b: 1}\ny: &y {b: 2, e: 5}\nd: {<<: [*x, *y], f: 1}\n"),
            R"({"a": {"b": 1}, "y": {"b": 2, "e": 5}, "d": {"b": 1, "e": 5, "f": 1}})");
}

TEST(Read, MergesThroughAMerge) {
  EXPECT_EQ(json("a: &x {<<: {b: 1}, c: 2}\nd: {<<: *x}\n"),
            R"({"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 2}})");
}

TEST(Read, TreatsAQuotedMergeKeyAsAKey) {
  EXPECT_EQ(json("\"<<\": {a: 1}\n"), R"({"<<": {"a": 1}})");
}

TEST(Read, RefusesAMergeOfSomethingElse) {
  EXPECT_EQ(refusal("d: {<<: 1}\n"), "error[config] f:1 d: '<<' takes a map or a list of maps");
  EXPECT_EQ(refusal("d: {<<: [1]}\n"), "error[config] f:1 d: '<<' takes a map or a list of maps");
}

TEST(Read, PlacesAnAliasWhereItIsUsed) {
  const Node root = config::read_text("a: &x {b: [1]}\nc:\n  d: *x\n", "f");
  EXPECT_EQ(root.find("c")->find("d")->find("b")->where(), "f:1 c.d.b");
  EXPECT_EQ(root.find("c")->find("d")->where(), "f:3 c.d");
}

TEST(Read, RefusesADuplicateKeyWithBothLines) {
  EXPECT_EQ(refusal("distributed:\n  tp_size: 1\n  pp_size: 1\n  tp_size: 2\n"),
            "error[config] f:4 distributed.tp_size: the key 'tp_size' is repeated; it is first in line 2\n"
            "  hint: keep one of them");
  EXPECT_NE(refusal("{a: 1, \"a\": 2}"), "");
  EXPECT_NE(refusal("{a: {<<: {b: 1}, <<: {c: 2}}}"), "");
}

TEST(Read, AllowsOneKeyInTwoMaps) {
  EXPECT_EQ(json("{a: {k: 1}, b: {k: 2}}"), R"({"a": {"k": 1}, "b": {"k": 2}})");
}

TEST(Read, RefusesAliasesThatGrow) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int k = 1; k < 10; ++k) bomb += ", " + before;
    bomb += "]\n";
  }
  EXPECT_NE(refusal(bomb).find("more than 200000 values once the aliases are written out"),
            std::string::npos);
}

TEST(Read, RefusesMergesThatGrow) {
  std::string bomb = "a0: &a0 {k: 1}\n";
  for (int i = 1; i < 40; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb +=
        "a" + std::to_string(i) + ": &a" + std::to_string(i) + " {<<: [" + before + ", " + before + "]}\n";
  }
  EXPECT_NE(refusal(bomb), "");
}

TEST(Read, RefusesAnAliasInsideItself) {
  EXPECT_EQ(refusal("a: &a [1, *a]\n"), "error[config] f:1: an alias inside its own value");
  EXPECT_EQ(refusal("a: &a\n  b: *a\n"), "error[config] f:2: an alias inside its own value");
}

TEST(Read, RefusesDeepNesting) {
  const std::string deep = std::string(200, '[') + std::string(200, ']');
  EXPECT_EQ(refusal(deep), "error[config] f:1: nested deeper than 100");
  const std::string fits = std::string(100, '[') + std::string(100, ']');
  EXPECT_EQ(refusal(fits), "");
  EXPECT_NE(refusal(std::string(100000, '[')), "");
}

TEST(Read, CountsTheDepthOfAliasesWrittenOut) {
  const auto nested = [](int levels, const std::string& inside) {
    return std::string(levels, '[') + inside + std::string(levels, ']');
  };
  const std::string first = "a: &a " + nested(60, "1") + "\n";
  EXPECT_EQ(refusal(first + "b: " + nested(39, "*a") + "\n"), "");
  EXPECT_EQ(refusal(first + "b: " + nested(40, "*a") + "\n"),
            "error[config] f:2: nested deeper than 100\n  hint: an alias counts as its whole value");
  std::string chain = "a0: &a0 " + nested(60, "1") + "\n";
  for (int i = 1; i < 500; ++i)
    chain += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " " +
             nested(60, "*a" + std::to_string(i - 1)) + "\n";
  EXPECT_NE(refusal(chain).find("f:2: nested deeper than 100"), std::string::npos);
}

TEST(Read, LimitsTheNumberOfKeys) {
  const auto keys = [](int count) {
    std::string yaml;
    for (int i = 0; i < count; ++i) yaml += "k" + std::to_string(i) + ": 1\n";
    return yaml;
  };
  EXPECT_EQ(config::read_text(keys(150000), "f").size(), 150000u);
  EXPECT_EQ(refusal(keys(250000)).substr(0, 62),
            "error[config] f:200000: more than 200000 values once the alias");
  EXPECT_NE(refusal(keys(150000) + "k149999: 2\n").find("'k149999' is repeated"), std::string::npos);
  std::string merges = "a: &a {";
  for (int i = 0; i < 5000; ++i) merges += "k" + std::to_string(i) + ": 1, ";
  merges += "}\nb: {<<: [";
  for (int i = 0; i < 5000; ++i) merges += "*a, ";
  EXPECT_NE(refusal(merges + "]}\n").find("more than 200000 values"), std::string::npos);
}

TEST(Read, LimitsTheBytesOfPathsAndAliases) {
  const std::string key(900, 'k');
  std::string levels;
  for (int i = 0; i < 13; ++i) levels += "{" + key + ": ";
  std::string wide = "a: &a [1";
  for (int i = 1; i < 400; ++i) wide += ", 1";
  wide += "]\nb: " + levels + "[*a";
  for (int i = 1; i < 400; ++i) wide += ", *a";
  wide += "]" + std::string(13, '}') + "\n";
  EXPECT_EQ(refusal(wide),
            "error[config] f:1: the values and their paths have more than 67108864 bytes\n"
            "  hint: write shorter keys, fewer levels, or fewer aliases");
  EXPECT_EQ(refusal(std::string(1001, 'k') + ": 1\n"),
            "error[config] f:1: a key of 1001 bytes; at most 1000 are read");
  std::string copies = "a: &a " + std::string(1 << 20, 'x') + "\nb: [*a";
  for (int i = 0; i < 100; ++i) copies += ", *a";
  EXPECT_NE(refusal(copies + "]\n").find("more than 67108864 bytes"), std::string::npos);
}

TEST(Read, CountsTheValuesInsideOfLiterals) {
  std::string literals = "- &a \"[1";
  for (int i = 0; i < 490; ++i) literals += ",1";
  literals += "]\"\n";
  for (int i = 0; i < 500; ++i) literals += "- *a\n";
  EXPECT_NE(refusal(literals).find("more than 200000 values"), std::string::npos);
}

TEST(Read, RefusesAFileThatIsTooLarge) {
  EXPECT_EQ(refusal("a: " + std::string(4 << 20, 'x')),
            "error[config] f: the file has 4194307 bytes; at most 4194304 are read");
}

TEST(Read, RefusesASecondDocument) {
  EXPECT_EQ(refusal("a: 1\n---\nb: 2\n"),
            "error[config] f: the file holds more than one YAML document\n  hint: keep one document");
}

TEST(Read, RefusesAKeyThatIsNotAWord) {
  EXPECT_EQ(refusal("? [1, 2]\n: 1\n").find("error[config] f:1: a key must be a word"), 0u);
}

TEST(Read, NamesLineAndColumnOfASyntaxError) {
  EXPECT_EQ(refusal("a: 1\nb: [1, 2\n").substr(0, 30), "error[config] f:3:1: YAML synt");
  EXPECT_EQ(refusal("a: *nobody\n").substr(0, 33), "error[config] f:1:4: YAML syntax:");
  for (const char* broken : {"a: 1\n b: 2\n", "{a: 1", "a: b: c\n", "a: \"x\n", "a: \"\\q\"\n", "a: ]\n",
                             "a: @x\n", "a:\n\tb: 1\n"})
    EXPECT_NE(refusal(broken), "") << broken;
}

TEST(Read, ReportsIndentationByTabs) {
  EXPECT_EQ(
      refusal("a: 1\nb:\n\tc: 1\n"),
      "error[config] f:3:3: YAML syntax: illegal map value\n  hint: indent by spaces: the line begins with a "
      "tab");
  EXPECT_EQ(refusal("a: 1\nb: c: 1\n").find("tab"), std::string::npos);
}

TEST(Read, SuggestsToQuoteTemplatesAndVariables) {
  const std::string hint =
      "\n  hint: Put the value in quotes: in YAML { begins a map and } ends one, also in {{ ... }}, {% ... "
      "%} and "
      "${...}.";
  EXPECT_EQ(refusal("a: {path: ${HOME}/x}\n"),
            "error[config] f:1:12: YAML syntax: end of map flow not found" + hint);
  EXPECT_EQ(refusal("a:\n  b: {% for m in messages %}{{ m }}{% endfor %}\n"),
            "error[config] f:2:7: YAML syntax: unknown token" + hint);
  EXPECT_EQ(refusal("a: {{ x }}\n"), "error[config] f:1 a: a key must be a word" + hint);
  EXPECT_EQ(
      refusal("a: @x\n"),
      "error[config] f:1:4: YAML syntax: unknown token\n  hint: Put the value in quotes: YAML reserves @ at "
      "its beginning.");
  EXPECT_EQ(refusal("a: \"{{ x }}\"\nb: {c: d\n").find("quotes"), std::string::npos);
}

TEST(Read, RefusesGapsThatTheParserWouldFillWithNull) {
  EXPECT_EQ(refusal("a: 1\ntp_size 2\n"), "error[config] f:2: YAML syntax: ':' is missing after 'tp_size 2'");
  EXPECT_EQ(refusal("a: [1, , 2]\n"), "error[config] f:1: YAML syntax: a value is missing before ','");
  EXPECT_EQ(refusal("a: 1\n: 2\n"), "error[config] f:2: YAML syntax: a key is missing, or it is null");
  EXPECT_NE(refusal("a: [,]\n"), "");
  EXPECT_NE(refusal("{a: 1, : 2}\n"), "");
  EXPECT_NE(refusal("~: 1\n"), "");
  EXPECT_EQ(json("{a, b: , c: [~, null, &x , 1,]}"), R"({"a": null, "b": null, "c": [null, null, null, 1]})");
  EXPECT_EQ(json("? a\nb:\nc: [\n1\n,2]\n"), R"({"a": null, "b": null, "c": [1, 2]})");
}

TEST(Read, RefusesAMissingFile) {
  EXPECT_EQ(thrown_by([] { config::read("/nowhere/run.yaml"); }),
            "error[config] /nowhere/run.yaml: does not exist or cannot be read\n"
            "  hint: check the path; a relative path starts at the working directory");
  EXPECT_EQ(thrown_by([] { config::read("/"); }),
            "error[config] /: is a directory, but must be a regular file\n  hint: name a file in it");
}

TEST(Read, RefusesAFifoUnopened) {
  const std::string file = testing::TempDir() + "/heddle_read_fifo";
  std::filesystem::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_EQ(
      thrown_by([&] { config::read(file); }),
      "error[config] " + file +
          ": is a FIFO, but must be a regular file\n  hint: write its data to a file, and name that file");
  std::filesystem::remove(file);
  EXPECT_EQ(thrown_by([] { config::read("/dev/zero"); }),
            "error[config] /dev/zero: is a device, but must be a regular file");
}

TEST(Read, NamesTomlAndJson) {
  const std::string file = testing::TempDir() + "/heddle_read_other";
  const auto refused = [&](const std::string& text) {
    std::ofstream(file) << text;
    return thrown_by([&] { config::read(file); });
  };
  const std::string toml = "\n  hint: this looks like TOML; heddle reads YAML: 'key: value' below 'section:'";
  EXPECT_EQ(refused("# a run\nseed = 42\n[distributed]\ntp_size = 2\n"),
            "error[config] " + file + ": expected a map of sections" + toml);
  EXPECT_EQ(refused("[distributed]\n"), "error[config] " + file + ": expected a map of sections" + toml);
  EXPECT_NE(refused("[distributed]\ntp_size = 2\n").find(toml), std::string::npos);
  EXPECT_NE(refused("// a run\n{\"seed\": 1}\n").find("hint: this looks like JSON"), std::string::npos);
  EXPECT_NE(refused("{\"seed\": 1,, }\n").find("hint: this looks like JSON"), std::string::npos);
  EXPECT_EQ(refused("{\"seed\": 1}\n"), "");
  EXPECT_EQ(refused("[a, b]\n"), "");
  EXPECT_EQ(refused("seed: 1 = 2\n"), "");
  std::filesystem::remove(file);
}

TEST(Read, PutsThePathInMessages) {
  const auto path = std::filesystem::path(testing::TempDir()) / "heddle_read_test.yaml";
  std::ofstream(path) << "seed: x\n";
  EXPECT_EQ(config::read(path.string()).find("seed")->where(), path.string() + ":1 seed");
  std::filesystem::remove(path);
}

TEST(Read, ReadsOnlyTheNamedKeys) {
  const auto path = std::filesystem::path(testing::TempDir()) / "heddle_read_only_test.yaml";
  std::ofstream(path)
      << "model: &m {token: \"${HEDDLE_TEST_NOBODY}\", size: 2}\nb: {<<: {c: *m}, d: 1}\na: [1]\n";
  const std::vector<std::string> keys = {"a"};
  EXPECT_EQ(config::to_json(config::read_only(path.string(), keys)), R"({"a": [1]})");
  EXPECT_NE(thrown_by([&] { config::read(path.string()); }), "");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace heddle
