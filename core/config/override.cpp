// "--a.b.c VALUE": one value of the tree set from the command line.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/config/node.h"

namespace heddle::config {
namespace {

constexpr int kMostLevels = 100;
constexpr size_t kLongestDottedKey = 1000;

// The value with paths and marks of its new position.
Node placed(const Node& value, const Mark& mark, const std::string& path) {
  switch (value.kind()) {
    case Node::Kind::null:
      return Node::null(mark, path);
    case Node::Kind::boolean:
      return Node::boolean(value.as_boolean(), mark, path);
    case Node::Kind::integer:
      return Node::integer(value.as_integer(), mark, path);
    case Node::Kind::real:
      return Node::real(value.as_real(), mark, path);
    case Node::Kind::text:
      return Node::text(value.as_text(), mark, path);
    case Node::Kind::list: {
      std::vector<Node> items;
      for (const Node& item : value.items())
        items.push_back(placed(item, mark, path + "[" + std::to_string(items.size()) + "]"));
      return Node::list(std::move(items), mark, path);
    }
    case Node::Kind::map: {
      std::vector<Node::Entry> entries;
      for (const auto& [key, item] : value.entries())
        entries.emplace_back(key, placed(item, mark, path + "." + key));
      return Node::map(std::move(entries), mark, path);
    }
  }
  return value;
}

Node set(const Node& at, const std::string& rest, const Node& value, const Mark& mark,
         const std::string& path) {
  if (rest.empty()) return value;
  if (!at.is_map() && !at.is_null())
    throw Error(ErrorCode::usage, mark.file, "'" + at.path() + "' is " + at.written() + ", not a section");
  const size_t dot = rest.find('.');
  const std::string key = rest.substr(0, dot);
  const std::string below = path.empty() ? key : path + "." + key;
  const Node* there = at.find(key);
  const Node child = there != nullptr ? *there : Node::null(mark, below);
  const Node changed = set(child, dot == std::string::npos ? "" : rest.substr(dot + 1), value, mark, below);
  const Node section = at.is_map() ? at : Node::map({}, at.mark().file.empty() ? mark : at.mark(), path);
  return section.with(key, changed);
}

// A value that begins with * is an alias in YAML, and mostly a pattern in the head of its author. A value
// that begins as a Jinja template and is no YAML is a text.
Node read_value(const std::string& value, const Mark& mark) {
  const bool is_pattern = value.starts_with('*') || value.starts_with('&');
  const bool is_template = value.starts_with("{%") || value.starts_with("{{") || value.starts_with("{#");
  try {
    return read_text(value, mark.file);
  } catch (const Error& error) {
    if (is_template) return Node::text(value, mark);
    if (!is_pattern) throw;
    throw Error(ErrorCode::config, mark.file,
                "the value begins with " + value.substr(0, 1) +
                    ", which is reserved in YAML: " + text::excerpt(value, 80),
                "quote it for YAML too: " + mark.file + " \"'" + text::excerpt(value, 80) + "'\"");
  }
}

}  // namespace

Node with_override(const Node& root, const std::string& dotted_key, const std::string& value) {
  const Mark mark{"--" + dotted_key, 0, 0};
  const bool malformed = dotted_key.empty() || dotted_key.front() == '.' || dotted_key.back() == '.' ||
                         dotted_key.find("..") != std::string::npos;
  if (malformed) throw Error(ErrorCode::usage, mark.file, "not a key", "write --SECTION.KEY VALUE");
  if (dotted_key.size() > kLongestDottedKey)
    throw Error(ErrorCode::usage, "--" + text::excerpt(dotted_key, 80),
                "a key of " + std::to_string(dotted_key.size()) + " characters; at most " +
                    std::to_string(kLongestDottedKey));
  if (std::count(dotted_key.begin(), dotted_key.end(), '.') >= kMostLevels)
    throw Error(ErrorCode::usage, "--", "a key of more than " + std::to_string(kMostLevels) + " levels");
  const Node read = read_value(value, mark);
  return set(root, dotted_key, placed(read, mark, dotted_key), mark, "");
}

}  // namespace heddle::config
