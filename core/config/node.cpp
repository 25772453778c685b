// The tree of values: one shared immutable record per node.
#include "heddle/config/node.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle {

struct Node::Value {
  Kind kind = Kind::null;
  bool boolean = false;
  int64_t integer = 0;
  double real = 0;
  std::string text = {};
  std::vector<Node> items = {};
  std::vector<Entry> entries = {};
  std::vector<const Entry*> by_key = {};  // entries sorted by key, where there are many
  Mark mark = {};
  std::string path = {};
};

namespace {

Error wrong_kind(const Node& node, std::string_view expected) {
  return Error(ErrorCode::config, node.where(),
               "expected " + std::string(expected) + ", got " + node.written());
}

constexpr size_t kFewEntries = 16;  // searched one by one

// 1e3 and 16.0 have an integer form, for the hint.
bool is_whole(double value) {
  return std::abs(value) < 0x1p53 && std::trunc(value) == value;
}

}  // namespace

Node::Node(std::shared_ptr<const Value> value) : value_(std::move(value)) {}

Node::Node() {
  static const std::shared_ptr<const Value> none = std::make_shared<Value>();
  value_ = none;
}

Node Node::make(Value value) {
  return Node(std::make_shared<const Value>(std::move(value)));
}

Node Node::null(Mark mark, std::string path) {
  return make({.mark = std::move(mark), .path = std::move(path)});
}

Node Node::boolean(bool boolean, Mark mark, std::string path) {
  return make({.kind = Kind::boolean, .boolean = boolean, .mark = std::move(mark), .path = std::move(path)});
}

Node Node::integer(int64_t integer, Mark mark, std::string path) {
  return make({.kind = Kind::integer, .integer = integer, .mark = std::move(mark), .path = std::move(path)});
}

Node Node::real(double real, Mark mark, std::string path) {
  return make({.kind = Kind::real, .real = real, .mark = std::move(mark), .path = std::move(path)});
}

Node Node::text(std::string text, Mark mark, std::string path) {
  return make(
      {.kind = Kind::text, .text = std::move(text), .mark = std::move(mark), .path = std::move(path)});
}

Node Node::list(std::vector<Node> items, Mark mark, std::string path) {
  return make(
      {.kind = Kind::list, .items = std::move(items), .mark = std::move(mark), .path = std::move(path)});
}

Node Node::map(std::vector<Entry> entries, Mark mark, std::string path) {
  Value value{
      .kind = Kind::map, .entries = std::move(entries), .mark = std::move(mark), .path = std::move(path)};
  if (value.entries.size() > kFewEntries) {
    for (const Entry& entry : value.entries) value.by_key.push_back(&entry);
    std::stable_sort(value.by_key.begin(), value.by_key.end(),
                     [](const Entry* a, const Entry* b) { return a->first < b->first; });
  }
  return make(std::move(value));
}

Node::Kind Node::kind() const {
  return value_->kind;
}
const std::vector<Node>& Node::items() const {
  return value_->items;
}
const std::vector<Node::Entry>& Node::entries() const {
  return value_->entries;
}
const Mark& Node::mark() const {
  return value_->mark;
}
const std::string& Node::path() const {
  return value_->path;
}

bool Node::as_boolean() const {
  if (kind() != Kind::boolean) throw wrong_kind(*this, "true or false");
  return value_->boolean;
}

int64_t Node::as_integer() const {
  if (kind() == Kind::integer) return value_->integer;
  const Error error = wrong_kind(*this, "an integer");
  if (kind() != Kind::real || !is_whole(value_->real)) throw error;
  throw Error(error.code(), error.where(), error.message(),
              "write " + std::to_string(static_cast<int64_t>(value_->real)));
}

double Node::as_real() const {
  if (kind() == Kind::integer) return static_cast<double>(value_->integer);
  if (kind() != Kind::real) throw wrong_kind(*this, "a number");
  return value_->real;
}

const std::string& Node::as_text() const {
  if (kind() != Kind::text) throw wrong_kind(*this, "a word");
  return value_->text;
}

size_t Node::size() const {
  return is_list() ? value_->items.size() : value_->entries.size();
}

const Node* Node::find(std::string_view key) const {
  if (value_->by_key.empty()) {
    for (const Entry& entry : value_->entries)
      if (entry.first == key) return &entry.second;
    return nullptr;
  }
  const auto found =
      std::lower_bound(value_->by_key.begin(), value_->by_key.end(), key,
                       [](const Entry* entry, std::string_view name) { return entry->first < name; });
  return found == value_->by_key.end() || (*found)->first != key ? nullptr : &(*found)->second;
}

Node Node::with(std::string_view key, Node value) const {
  std::vector<Entry> entries = value_->entries;
  for (Entry& entry : entries) {
    if (entry.first != key) continue;
    entry.second = std::move(value);
    return map(std::move(entries), mark(), path());
  }
  entries.emplace_back(key, std::move(value));
  return map(std::move(entries), mark(), path());
}

Node Node::without(std::string_view key) const {
  std::vector<Entry> entries;
  for (const Entry& entry : value_->entries)
    if (entry.first != key) entries.push_back(entry);
  return map(std::move(entries), mark(), path());
}

std::string Node::where() const {
  std::string out = value_->mark.file;
  if (value_->mark.line > 0) out += ":" + std::to_string(value_->mark.line);
  // A value from an override is named by the override alone.
  if (value_->path.empty() || out.starts_with("--" + value_->path)) return out;
  return (out.empty() ? "" : out + " ") + text::excerpt(value_->path);
}

std::string Node::written() const {
  switch (kind()) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return value_->boolean ? "true" : "false";
    case Kind::integer:
      return std::to_string(value_->integer);
    case Kind::real: {
      const std::string text = config::to_yaml(*this);
      return text.substr(0, text.size() - 1);
    }
    case Kind::text:
      return "'" + text::excerpt(value_->text) + "'";
    case Kind::list:
      return value_->items.empty() ? "an empty list" : "a list";
    case Kind::map:
      return value_->entries.empty() ? "an empty map" : "a map";
  }
  return "";
}

bool Node::operator==(const Node& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::null:
      return true;
    case Kind::boolean:
      return value_->boolean == other.value_->boolean;
    case Kind::integer:
      return value_->integer == other.value_->integer;
    case Kind::real:
      return value_->real == other.value_->real;
    case Kind::text:
      return value_->text == other.value_->text;
    case Kind::list:
      return value_->items == other.value_->items;
    case Kind::map:
      return value_->entries == other.value_->entries;
  }
  return false;
}

}  // namespace heddle
