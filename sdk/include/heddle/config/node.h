// Immutable tree of YAML values. Every Node has its file, line, column and path.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

// The position of a value in its file.
struct Mark {
  std::string file;  // "run.yaml"; "--distributed.tp_size" for an override; "" for a default
  int line = 0;      // from 1; 0 if there is no line
  int column = 0;    // from 1
};

// Immutable value; copies share the tree. Numbers, booleans and nulls are already resolved by YAML 1.1 and
// the literals of recipes ("none" is null, "0x2" is 2), so a Node of Kind::text is always a string.
class HEDDLE_API Node {
 public:
  enum class Kind { null, boolean, integer, real, text, list, map };
  using Entry = std::pair<std::string, Node>;

  Node();  // null without a mark
  static Node boolean(bool value, Mark mark = {}, std::string path = "");
  static Node integer(int64_t value, Mark mark = {}, std::string path = "");
  static Node real(double value, Mark mark = {}, std::string path = "");
  static Node text(std::string value, Mark mark = {}, std::string path = "");
  static Node null(Mark mark = {}, std::string path = "");
  static Node list(std::vector<Node> items, Mark mark = {}, std::string path = "");
  static Node map(std::vector<Entry> entries, Mark mark = {}, std::string path = "");

  Kind kind() const;
  bool is_null() const { return kind() == Kind::null; }
  bool is_map() const { return kind() == Kind::map; }
  bool is_list() const { return kind() == Kind::list; }

  // These throw Error{config}, such as "expected a boolean, got the word 'x'", if the kind differs.
  bool as_boolean() const;
  int64_t as_integer() const;
  double as_real() const;  // also accepts an integer
  const std::string& as_text() const;

  // Elements of a list or map, in the order of the file. Other kinds have size 0 and no elements.
  size_t size() const;
  const std::vector<Node>& items() const;
  const std::vector<Entry>& entries() const;
  // Returns the value of a key, or null if the key is absent or this node is not a map.
  const Node* find(std::string_view key) const;

  // Returns this map with one key replaced in place or appended, or without the key.
  Node with(std::string_view key, Node value) const;
  Node without(std::string_view key) const;

  const Mark& mark() const;
  const std::string& path() const;  // "distributed.mp_policy.param_dtype"
  std::string where() const;        // "run.yaml:14 distributed.mp_policy.param_dtype"
  std::string written() const;      // the value for a message: 'x', 3, true, null, "a list", "a map"

  bool operator==(const Node& other) const;  // compares values and ignores marks and paths

  struct Value;
  static Node make(Value value);

 private:
  explicit Node(std::shared_ptr<const Value> value);
  std::shared_ptr<const Value> value_;
};

namespace config {

// Reads a YAML file. Throws Error{config} with file, line and column for a syntax error, a duplicate key, a
// file that is too deep or too large, too many aliases, or an environment variable that is not set.
HEDDLE_API Node read(const std::string& file);
// Reads a YAML file, but interprets only these top-level keys. Other keys may contain unset variables.
HEDDLE_API Node read_only(const std::string& file, std::span<const std::string> keys);
// Reads YAML from a string. `name` is the file name in messages.
HEDDLE_API Node read_text(const std::string& yaml, const std::string& name);
// Returns `root` with "a.b.c" set to a value parsed as YAML ("none" is null). Creates missing maps. The mark
// is "--a.b.c".
HEDDLE_API Node with_override(const Node& root, const std::string& dotted_key, const std::string& value);

HEDDLE_API std::string to_json(const Node& node);  // one line
HEDDLE_API std::string to_yaml(const Node& node);  // block style; parses back to an equal Node

}  // namespace config
}  // namespace heddle
