// Values of the configuration tree: location, kind, equality.
#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "heddle/config/node.h"

namespace heddle {
namespace {

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.where() + ": " + error.message();
  }
  return "";
}

TEST(Node, KnowsItsLocation) {
  const Node root =
      config::read_text("seed: 1\ndistributed:\n  mp_policy:\n    param_dtype: x\n", "run.yaml");
  const Node& node = *root.find("distributed")->find("mp_policy")->find("param_dtype");
  EXPECT_EQ(node.where(), "run.yaml:4 distributed.mp_policy.param_dtype");
  EXPECT_EQ(node.mark().column, 5);
}

TEST(Node, PlacesAValueOfTheNextLineAtItsKey) {
  const Node root = config::read_text("a:\n\n  - 1\n", "f");
  EXPECT_EQ(root.find("a")->mark().line, 1);
  EXPECT_EQ(root.find("a")->items()[0].where(), "f:3 a[0]");
}

TEST(Node, QuotesTheBeginningOfALongValueOrKey) {
  const std::string page(500'000, 'x'), begin = std::string(200, 'x') + "... (500000 bytes)";
  const Node root = config::read_text("a: " + page + "\nb: \"one\\ntwo\\e[31m\"\n", "f");
  EXPECT_EQ(message_of([&] { root.find("a")->as_integer(); }),
            "f:1 a: expected an integer, got '" + begin + "'");
  EXPECT_EQ(message_of([&] { root.find("b")->as_integer(); }),
            "f:2 b: expected an integer, got 'one\\ntwo\\x1b[31m'");
  EXPECT_EQ(Node::integer(1, {"f", 1, 1}, page).where(), "f:1 " + begin);
}

TEST(Node, NamesItsKindWhenAnotherIsExpected) {
  const Node root = config::read_text("{b: word, i: 3, n: null, l: [1], m: {}, r: 2.5, t: yes}", "f");
  EXPECT_EQ(message_of([&] { root.find("b")->as_boolean(); }), "f:1 b: expected true or false, got 'word'");
  EXPECT_EQ(message_of([&] { root.find("l")->as_integer(); }), "f:1 l: expected an integer, got a list");
  EXPECT_EQ(message_of([&] { root.find("r")->as_integer(); }), "f:1 r: expected an integer, got 2.5");
  EXPECT_EQ(message_of([&] { root.find("t")->as_integer(); }), "f:1 t: expected an integer, got true");
  EXPECT_EQ(message_of([&] { root.find("m")->as_real(); }), "f:1 m: expected a number, got an empty map");
  EXPECT_EQ(message_of([&] { root.find("i")->as_text(); }), "f:1 i: expected a word, got 3");
  EXPECT_EQ(message_of([&] { root.find("n")->as_text(); }), "f:1 n: expected a word, got null");
}

TEST(Node, ReadsAnIntegerAsAReal) {
  EXPECT_EQ(Node::integer(3).as_real(), 3.0);
}

TEST(Node, ComparesValuesAndNotMarks) {
  EXPECT_EQ(config::read_text("a: [1, x]", "f"), config::read_text("\n\na:\n- 1\n- x\n", "g"));
  EXPECT_FALSE(Node::integer(1) == Node::real(1.0));
  EXPECT_FALSE(Node::integer(1) == Node::boolean(true));
}

TEST(Node, KeepsTheOriginalInWithAndWithout) {
  const Node one = config::read_text("{a: 1, b: 2}", "f");
  const Node two = one.with("a", Node::text("x")).without("b").with("c", Node::null());
  EXPECT_EQ(config::to_json(one), R"({"a": 1, "b": 2})");
  EXPECT_EQ(config::to_json(two), R"({"a": "x", "c": null})");
}

}  // namespace
}  // namespace heddle
