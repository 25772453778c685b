// Meaning of scalars: YAML 1.1, then a Python literal. The rows were compared with PyYAML 6.0 and CPython.
#include <gtest/gtest.h>

#include <cstdlib>

#include "heddle/config/node.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using tests::thrown_by;

struct Row {
  const char* yaml;
  const char* json;
};

std::string meaning(const std::string& yaml) {
  return config::to_json(*config::read_text("k: " + yaml + "\n", "f").find("k"));
}

class Scalar : public testing::TestWithParam<Row> {};

TEST_P(Scalar, HasTheMeaningOfRecipes) {
  EXPECT_EQ(meaning(GetParam().yaml), GetParam().json) << GetParam().yaml;
}

constexpr Row kIntegers[] = {{"1", "1"},
                             {"-1", "-1"},
                             {"+1", "1"},
                             {"0", "0"},
                             {"00", "0"},
                             {"-0", "0"},
                             {"010", "8"},
                             {"002", "2"},
                             {"0777", "511"},
                             {"0x1f", "31"},
                             {"0X1F", "31"},
                             {"0b101", "5"},
                             {"0B1", "1"},
                             {"0o10", "8"},
                             {"0O17", "15"},
                             {"1_000", "1000"},
                             {"1__0", "10"},
                             {"1_", "1"},
                             {"1:00", "60"},
                             {"190:20:30", "685230"},
                             {"-1:30", "-90"},
                             {"0xDEAD_BEEF", "3735928559"},
                             {"9223372036854775807", "9223372036854775807"},
                             {"\"-9223372036854775808\"", "-9223372036854775808"},
                             {"!!int \"5\"", "5"},
                             {"!!str 5", "5"},
                             {"\"2\"", "2"},
                             {"'2'", "2"},
                             {"\"0x2\"", "2"},
                             {"\" 2\"", "2"},
                             {"\"2 \"", "2"},
                             {"\"\\t2\"", "2"},
                             {"\"-5\"", "-5"},
                             {"\"- 5\"", "-5"},
                             {"\"(5)\"", "5"},
                             {"\"((5))\"", "5"},
                             {"\"5 # c\"", "5"},
                             {"\"0_0\"", "0"},
                             {"\"0x_1f\"", "31"},
                             {"|\n  5\n", "5"}};
INSTANTIATE_TEST_SUITE_P(Integers, Scalar, testing::ValuesIn(kIntegers));

constexpr Row kReals[] = {{"1e3", "1000.0"},
                          {"9000000000000000000:00", "5.4e+20"},
                          {"1E3", "1000.0"},
                          {"1e-3", "0.001"},
                          {"1.0e+3", "1000.0"},
                          {"1.0e3", "1000.0"},
                          {".5", "0.5"},
                          {"-.5", "-0.5"},
                          {"+.5", "0.5"},
                          {"1.", "1.0"},
                          {"1_0.5", "10.5"},
                          {"190:20:30.15", "685230.15"},
                          {".inf", "\"inf\""},
                          {"-.INF", "\"-inf\""},
                          {".nan", "\"nan\""},
                          {"!!float 5", "5.0"},
                          {"!!float 1e3", "1000.0"},
                          {"\"1e400\"", "\"inf\""},
                          {"09.5", "9.5"},
                          {"\"09e1\"", "90.0"},
                          {"99999999999999999999", "1e+20"},
                          {"1.0e-08", "1e-08"},
                          {"0.1", "0.1"}};
INSTANTIATE_TEST_SUITE_P(Reals, Scalar, testing::ValuesIn(kReals));

constexpr Row kBooleansAndNulls[] = {
    {"yes", "true"},       {"Yes", "true"},       {"YES", "true"},      {"on", "true"},
    {"On", "true"},        {"true", "true"},      {"TRUE", "true"},     {"no", "false"},
    {"NO", "false"},       {"off", "false"},      {"False", "false"},   {"\"true\"", "true"},
    {"\"True\"", "true"},  {"\" True\"", "true"}, {"'false'", "false"}, {"!!bool yes", "true"},
    {"", "null"},          {"~", "null"},         {"null", "null"},     {"Null", "null"},
    {"NULL", "null"},      {"none", "null"},      {"None", "null"},     {"\"none\"", "null"},
    {"\"None \"", "null"}, {"!!null x", "null"}};
INSTANTIATE_TEST_SUITE_P(BooleansAndNulls, Scalar, testing::ValuesIn(kBooleansAndNulls));

constexpr Row kWords[] = {{"NONE", "\"NONE\""},
                          {"nOne", "\"nOne\""},
                          {"yEs", "\"yEs\""},
                          {"y", "\"y\""},
                          {"tRUE", "\"tRUE\""},
                          {"\"yes\"", "\"yes\""},
                          {"'on'", "\"on\""},
                          {"\"null\"", "\"null\""},
                          {"\"TRUE\"", "\"TRUE\""},
                          {"\"none \"", "\"none \""},
                          {"08", "\"08\""},
                          {"\"007\"", "\"007\""},
                          {"0:30", "\"0:30\""},
                          {"1:60", "\"1:60\""},
                          {"\"1__0\"", "\"1__0\""},
                          {"\"--5\"", "\"--5\""},
                          {"\"1 + 2\"", "\"1 + 2\""},
                          {"inf", "\"inf\""},
                          {"1a", "\"1a\""},
                          {"10.0.0.1", "\"10.0.0.1\""},
                          {"\"\"", "\"\""},
                          {"\"  \"", "\"  \""},
                          {"\"1j\"", "\"1j\""},
                          {"\"b'x'\"", "\"b'x'\""},
                          {"\"f'x'\"", "\"f'x'\""},
                          {"2001-01-01", "\"2001-01-01\""},
                          {"a.b.c", "\"a.b.c\""},
                          {"\"'2'\"", "\"2\""},
                          {"\"'a' 'b'\"", "\"ab\""},
                          {"\"'\\\\x41'\"", "\"A\""},
                          {"\"r'a\\\\n'\"", "\"a\\\\n\""},
                          {"\"'''a'''\"", "\"a\""},
                          {"\"'unclosed\"", "\"'unclosed\""},
                          {"\"(1\"", "\"(1\""},
                          {"\"lambda: 1\"", "\"lambda: 1\""}};
INSTANTIATE_TEST_SUITE_P(Words, Scalar, testing::ValuesIn(kWords));

constexpr Row kLiterals[] = {{"\"['cp']\"", "[\"cp\"]"},
                             {"\"('cp',)\"", "[\"cp\"]"},
                             {"\"()\"", "[]"},
                             {"\"5,\"", "[5]"},
                             {"1,2", "[1, 2]"},
                             {"\"{'a'}\"", "[\"a\"]"},
                             {"\"{}\"", "{}"},
                             {"\"{'a': {'b': [1, None]}}\"", "{\"a\": {\"b\": [1, null]}}"},
                             {"\"{'a': 1, 'a': 2}\"", "{\"a\": 2}"},
                             {"\"[1,\\n2]\"", "[1, 2]"},
                             {"\"[1 2]\"", "\"[1 2]\""},
                             {"\"(1,,2)\"", "\"(1,,2)\""},
                             {"\"['none', '2']\"", "[\"none\", \"2\"]"}};
INSTANTIATE_TEST_SUITE_P(Literals, Scalar, testing::ValuesIn(kLiterals));

TEST(Scalar, ReadsMoreThanAThousandCharactersAsAWord) {
  const std::string word(998, 'a');
  EXPECT_EQ(meaning("\"'" + word + "'\""), "\"" + word + "\"");
  EXPECT_EQ(meaning("\"'a" + word + "'\""), "\"'a" + word + "'\"");
}

TEST(Scalar, ReadsDeepBracketsAsAWord) {
  const std::string deep(900, '[');
  EXPECT_EQ(meaning("\"" + deep + "\""), "\"" + deep + "\"");
}

TEST(Scalar, KeepsANameOfCode) {
  const Node root = config::read_text("{_target_: \"5\", loss_fn: none, x_fn: \"$HOME\"}", "f");
  EXPECT_EQ(config::to_json(root), R"({"_target_": "5", "loss_fn": "none", "x_fn": "$HOME"})");
}

TEST(Scalar, RefusesATagThatDoesNotFit) {
  EXPECT_EQ(thrown_by([] { config::read_text("a:\n  b: !!int x\n", "f"); }),
            "error[config] f:2 a.b: 'x' is no !!int");
  EXPECT_EQ(thrown_by([] { config::read_text("a: !!python/name:os.system x\n", "f"); }),
            "error[config] f:1 a: the tag 'tag:yaml.org,2002:python/name:os.system' is not read here\n"
            "  hint: write the value without a tag");
}

class Environment : public testing::Test {
 protected:
  void SetUp() override {
    setenv("HEDDLE_TEST_SEVEN", "7", 1);
    setenv("HEDDLE_TEST_WORD", "hello", 1);
    unsetenv("HEDDLE_TEST_NOBODY");
  }
};

TEST_F(Environment, FillsVariablesBeforeTheLiteral) {
  EXPECT_EQ(meaning("$HEDDLE_TEST_SEVEN"), "7");
  EXPECT_EQ(meaning("${HEDDLE_TEST_SEVEN}"), "7");
  EXPECT_EQ(meaning("\"${ HEDDLE_TEST_SEVEN }\""), "7");
  EXPECT_EQ(meaning("${oc.env:HEDDLE_TEST_SEVEN}"), "7");
  EXPECT_EQ(meaning("'1${HEDDLE_TEST_SEVEN}'"), "17");
  EXPECT_EQ(meaning("out/$HEDDLE_TEST_WORD-x"), "\"out/hello-x\"");
  EXPECT_EQ(meaning("\"[$HEDDLE_TEST_SEVEN, 1]\""), "[7, 1]");
}

TEST_F(Environment, UsesTheDefaultOnlyIfTheVariableIsNotSet) {
  EXPECT_EQ(meaning("\"${HEDDLE_TEST_SEVEN,3}\""), "7");
  EXPECT_EQ(meaning("\"${HEDDLE_TEST_NOBODY, 3 }\""), "3");
  EXPECT_EQ(meaning("\"${oc.env:HEDDLE_TEST_NOBODY,none}\""), "null");
  EXPECT_EQ(meaning("\"${HEDDLE_TEST_NOBODY,}\""), "\"\"");
  EXPECT_EQ(meaning("\"${HEDDLE_TEST_NOBODY,a,b}\""), "\"a,b\"");
}

TEST_F(Environment, HasTheDirectoryOfTheFile) {
  const auto value = [](const std::string& text, const std::string& file) {
    return config::to_json(*config::read_text("a: " + text + "\n", file).find("a"));
  };
  EXPECT_EQ(value("${HEDDLE_CONFIG_DIR}/../data", "runs/$x/one.yaml"), "\"runs/$x/../data\"");
  EXPECT_EQ(value("${HEDDLE_CONFIG_DIR}/${HEDDLE_TEST_SEVEN}/${HEDDLE_CONFIG_DIR}", "run.yaml"), "\"./7/.\"");
}

TEST_F(Environment, LeavesADollarThatNamesNothing) {
  EXPECT_EQ(meaning("\"$5 $ ${} ${HEDDLE\""), "\"$5 $ ${} ${HEDDLE\"");
}

TEST_F(Environment, RefusesAVariableThatIsNotSet) {
  EXPECT_EQ(thrown_by([] { config::read_text("a:\n  b: x/${HEDDLE_TEST_NOBODY}\n", "f"); }),
            "error[config] f:2 a.b: the environment variable 'HEDDLE_TEST_NOBODY' is not set (needed by "
            "'${HEDDLE_TEST_NOBODY}')\n  hint: set it, or write a default: ${HEDDLE_TEST_NOBODY,default}");
  EXPECT_NE(thrown_by([] { config::read_text("a: $HEDDLE_TEST_SEVEN.x\n", "f"); }),
            "");  // dots are part of the name
}

TEST_F(Environment, ExplainsTheSyntaxOfADefault) {
  EXPECT_EQ(thrown_by([] { config::read_text("a: ${HEDDLE_TEST_NOBODY:-.}\n", "f"); }),
            "error[config] f:1 a: '${HEDDLE_TEST_NOBODY:-.}' has a default as a shell writes it, after ':-'\n"
            "  hint: a comma comes before a default: ${HEDDLE_TEST_NOBODY,.}");
}

TEST_F(Environment, RefusesAValueThatBecomesTooLong) {
  const std::string value(100000, 'x');
  setenv("HEDDLE_TEST_SEVEN", value.c_str(), 1);
  std::string many;
  for (int i = 0; i < 11; ++i) many += "${HEDDLE_TEST_SEVEN}";
  EXPECT_EQ(thrown_by([&] { config::read_text("a: " + many + "\n", "f"); }),
            "error[config] f:1 a: more than 1048576 bytes with its environment variables written out");
}

TEST_F(Environment, SkipsManyUnclosedBraces) {
  std::string open;
  for (int i = 0; i < 1000000; ++i) open += "${";
  EXPECT_EQ(config::read_text("a: '" + open + "'\n", "f").find("a")->as_text(), open);
}

}  // namespace
}  // namespace heddle
