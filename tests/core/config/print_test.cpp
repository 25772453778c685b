// Printed YAML and JSON reads back as the same value.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <limits>

#include "heddle/base/error.h"
#include "heddle/config/node.h"

namespace heddle {
namespace {

TEST(Print, WritesJsonOnOneLine) {
  const Node node =
      config::read_text("{a: [1, 2.0, x, null, true], b: {}, c: [], \"q\\\"\": \"l\\nm\"}", "f");
  EXPECT_EQ(config::to_json(node), R"({"a": [1, 2.0, "x", null, true], "b": {}, "c": [], "q\"": "l\nm"})");
}

TEST(Print, WritesYamlInBlockStyle) {
  const Node node = config::read_text("{a: [1, {b: x}], c: {d: {}}, e: null}", "f");
  EXPECT_EQ(config::to_yaml(node), "a:\n  - 1\n  -\n    b: x\nc:\n  d: {}\ne: null\n");
}

TEST(Print, QuotesAmbiguousWords) {
  for (const char* word : {"2",   "yes", "none", "1e3",  "",     " x",   "$HOME", "${X}", "'a'", "a: b",
                           "# c", "- x", "~",    "null", "a\nb", "it's", "\\",    "[1]",  "{}",  "<<",
                           "*a",  "&a",  "!x",   "010",  "True", "é",    "\t",    "'",    "\""}) {
    const Node node = Node::map({{"k", Node::text(word)}, {"l", Node::list({Node::text(word)})}});
    EXPECT_EQ(config::read_text(config::to_yaml(node), "f"), node) << word << "\n" << config::to_yaml(node);
  }
}

TEST(Print, KeepsEveryBitOfReals) {
  for (const double value :
       {0.1, 1e-8, 1e300, 5e-324, -0.0, 1.0 / 3, 1e22, std::numeric_limits<double>::infinity()}) {
    const Node node = Node::map({{"k", Node::real(value)}});
    EXPECT_EQ(config::read_text(config::to_yaml(node), "f"), node) << value;
  }
}

// Any tree of printable words, numbers, lists and maps.
rc::Gen<Node> any_node(int depth) {
  const auto word = rc::gen::container<std::string>(rc::gen::inRange<char>(' ', '\x7f'));
  const auto leaf =
      rc::gen::oneOf(rc::gen::just(Node()),
                     rc::gen::map(rc::gen::arbitrary<bool>(), [](bool b) { return Node::boolean(b); }),
                     rc::gen::map(rc::gen::arbitrary<int64_t>(), [](int64_t i) { return Node::integer(i); }),
                     rc::gen::map(rc::gen::arbitrary<double>(), [](double r) { return Node::real(r); }),
                     rc::gen::map(word, [](std::string w) { return Node::text(std::move(w)); }));
  if (depth == 0) return leaf;
  const auto list = rc::gen::map(rc::gen::container<std::vector<Node>>(any_node(depth - 1)),
                                 [](std::vector<Node> items) { return Node::list(std::move(items)); });
  const auto map = rc::gen::map(rc::gen::container<std::vector<std::pair<std::string, Node>>>(
                                    rc::gen::pair(rc::gen::nonEmpty(word), any_node(depth - 1))),
                                [](const std::vector<std::pair<std::string, Node>>& entries) {
                                  Node out = Node::map({});
                                  for (const auto& [key, value] : entries) out = out.with(key, value);
                                  return out;
                                });
  return rc::gen::oneOf(leaf, list, map);
}

TEST(Print, RoundTripsAnyTree) {
  const bool holds = rc::check([] {
    const Node node = Node::map({{"root", *rc::gen::resize(8, any_node(3))}});
    RC_ASSERT(config::read_text(config::to_yaml(node), "f") == node);
  });
  EXPECT_TRUE(holds);
}

TEST(Read, ReadsOrRefusesAnyText) {
  const bool holds = rc::check([] {
    const auto text = *rc::gen::container<std::string>(
        rc::gen::elementOf(std::string("ab01 \n\t:-[]{},#&*!|>'\"%@`$<?.~\\e_x")));
    try {
      config::read_text(text, "f");
    } catch (const Error& error) {
      RC_ASSERT(error.code() == ErrorCode::config);
    }
  });
  EXPECT_TRUE(holds);
}

}  // namespace
}  // namespace heddle
