// From YAML text to a tree of nodes: anchors, merges, duplicate keys, depth and size are decided here.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <unordered_map>

#include "core/base/regular_file.h"
#include "core/config/raw_tree.h"
#include "core/config/scalar.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle::config {
namespace {

constexpr std::string_view kBlank = " \t\r\n";
constexpr std::string_view kWord = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.\" \t";

// "[section]", "[[list]]" or "key = value".
bool is_toml(const std::string& line) {
  if (line[0] == '[') {
    const size_t close = line.find(']');
    return close != line.npos && line.find(',') == line.npos && close > 1 &&
           line.find_first_not_of("[]" + std::string(kWord)) == line.npos;
  }
  const size_t sign = line.find('=');
  return sign != line.npos && sign > 0 && line.substr(0, sign).find_first_not_of(kWord) == line.npos;
}

// "this looks like TOML; ..." or "this looks like JSON; ...", for the hint of an error; else empty.
std::string other_format(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find_first_not_of(kBlank);
    if (first == line.npos || line[first] == '#') continue;
    line = line.substr(first, line.find_last_not_of(kBlank) + 1 - first);
    if (line[0] == '{' || line.starts_with("//"))
      return "this looks like JSON; YAML reads JSON without comments and with a value after each colon";
    return is_toml(line) ? "this looks like TOML; heddle reads YAML: 'key: value' below 'section:'" : "";
  }
  return "";
}

constexpr size_t kLargestFile = 4u << 20;  // bytes
constexpr size_t kMostNodes = 200000;      // values once every alias is written out
constexpr size_t kMostBytes = 64u << 20;   // of values and paths
constexpr size_t kLongestKey = 1000;       // bytes
constexpr std::string_view kYamlTag = "tag:yaml.org,2002:";

// Sections that hold notes of other tools, and parts for other sections: nothing in them is evaluated, so
// that variables of the environment need not be set.
bool is_of_other_tools(std::string_view path) {
  const std::string_view section = path.substr(0, path.find_first_of(".["));
  return section == "ci" || section == "skypilot" || section.starts_with("_");
}

// Turns raw nodes into values; counts them, so that aliases cannot grow without end.
class Resolver {
 public:
  Resolver(const std::string& file, std::span<const std::string> keys) : file_(file), keys_(keys) {}

  Node node(const Raw& raw, const RawMark& at, const std::string& path) {
    const Mark mark{file_, at.line, at.column};
    spend(1, path.size() + raw.text.size(), raw.mark);
    switch (raw.kind) {
      case Raw::Kind::null:
        return Node::null(mark, path);
      case Raw::Kind::scalar:
        return scalar(raw, mark, path);
      case Raw::Kind::list:
        return list(raw, mark, path);
      case Raw::Kind::map:
        return map(raw, mark, path);
    }
    return Node();
  }

 private:
  struct Pair {
    std::string key;
    const Raw* value;
    RawMark mark;
  };

  // Pairs in their order, found by their key.
  class Pairs {
   public:
    const Pair* find(const std::string& key) const {
      const auto at = places_.find(key);
      return at == places_.end() ? nullptr : &pairs_[at->second];
    }
    // An existing pair is replaced in place, or kept.
    void add(Pair pair, bool replaces) {
      const auto [at, is_new] = places_.try_emplace(pair.key, pairs_.size());
      if (is_new)
        pairs_.push_back(std::move(pair));
      else if (replaces)
        pairs_[at->second] = std::move(pair);
    }
    const std::vector<Pair>& all() const { return pairs_; }

   private:
    std::vector<Pair> pairs_;
    std::unordered_map<std::string, size_t> places_;
  };

  // Counts values and their bytes, so that neither aliases nor long keys grow without end.
  void spend(size_t values, size_t bytes, const RawMark& at) {
    count_ += values;
    bytes_ += bytes;
    if (count_ > kMostNodes)
      throw Error(ErrorCode::config, where(at, ""),
                  "more than " + std::to_string(kMostNodes) + " values once the aliases are written out",
                  "write the file without aliases of aliases");
    if (bytes_ > kMostBytes)
      throw Error(ErrorCode::config, where(at, ""),
                  "the values and their paths have more than " + std::to_string(kMostBytes) + " bytes",
                  "write shorter keys, fewer levels, or fewer aliases");
  }

  // A string may be a Python literal with nested values.
  void spend_inside(const Node& value, const RawMark& at) {
    spend(value.size(), value.size() * value.path().size(), at);
    for (const Node& item : value.items()) spend_inside(item, at);
    for (const auto& [key, item] : value.entries()) spend_inside(item, at);
  }

  std::string where(const RawMark& at, const std::string& path) const {
    return Node::null({file_, at.line, at.column}, path).where();
  }

  std::string tag_of(const Raw& raw, const std::string& path,
                     std::initializer_list<std::string_view> known) const {
    if (raw.tag.empty() || raw.tag == "?" || raw.tag == "!") return raw.tag;
    for (const std::string_view word : known)
      if (raw.tag == std::string(kYamlTag) + std::string(word)) return std::string(word);
    throw Error(ErrorCode::config, where(raw.mark, path),
                "the tag '" + text::excerpt(raw.tag) + "' is not read here", "write the value without a tag");
  }

  Node scalar(const Raw& raw, const Mark& mark, const std::string& path) {
    const Node value = meaning(raw, mark, path);
    spend_inside(value, raw.mark);
    return value;
  }

  Node meaning(const Raw& raw, const Mark& mark, const std::string& path) const {
    if (is_of_other_tools(path)) return Node::text(raw.text, mark, path);
    const std::string tag = tag_of(raw, path, {"str", "int", "float", "bool", "null"});
    if (tag != "?" && tag != "!" && tag != "str") return tagged(raw, tag, mark, path);
    if (tag == "?")
      if (auto plain = yaml_meaning(raw.text, mark, path)) return *plain;
    if (names_code(std::string_view(path).substr(path.find_last_of('.') + 1)))
      return Node::text(raw.text, mark, path);
    return string_meaning(raw.text, mark, path);
  }

  // !!int, !!float, !!bool and !!null set the type of the text.
  Node tagged(const Raw& raw, const std::string& tag, const Mark& mark, const std::string& path) const {
    if (tag == "null") return Node::null(mark, path);
    auto value = yaml_meaning(raw.text, mark, path);
    if (!value && tag == "float") value = python_literal(raw.text, mark, path);
    const Node::Kind kind = value ? value->kind() : Node::Kind::text;
    if (tag == "float" && kind == Node::Kind::integer) return Node::real(value->as_real(), mark, path);
    if ((tag == "int" && kind == Node::Kind::integer) || (tag == "float" && kind == Node::Kind::real) ||
        (tag == "bool" && kind == Node::Kind::boolean))
      return *value;
    throw Error(ErrorCode::config, where(raw.mark, path), "'" + text::excerpt(raw.text) + "' is no !!" + tag);
  }

  Node list(const Raw& raw, const Mark& mark, const std::string& path) {
    tag_of(raw, path, {"seq"});
    std::vector<Node> items;
    for (const auto& item : raw.items)
      items.push_back(node(*item, item->mark, path + "[" + std::to_string(items.size()) + "]"));
    return Node::list(std::move(items), mark, path);
  }

  Node map(const Raw& raw, const Mark& mark, const std::string& path) {
    std::vector<Node::Entry> entries;
    const Pairs pairs = collect(raw, path, 0);
    for (const Pair& pair : pairs.all())
      if (!path.empty() || wanted(pair.key))
        entries.emplace_back(pair.key,
                             node(*pair.value, pair.mark, path.empty() ? pair.key : path + "." + pair.key));
    return Node::map(std::move(entries), mark, path);
  }

  // The file's own keys: all, or those asked for.
  bool wanted(const std::string& key) const {
    return keys_.empty() || std::find(keys_.begin(), keys_.end(), key) != keys_.end();
  }

  // The keys of a map with its merges: an own key wins over a merged one, an earlier merge over a later one.
  Pairs collect(const Raw& raw, const std::string& path, int depth) {
    tag_of(raw, path, {"map"});
    if (depth > 50) throw Error(ErrorCode::config, where(raw.mark, path), "merges are nested too deep");
    Pairs own;
    const Raw* merge = nullptr;
    for (const auto& [key, value] : raw.entries) {
      check_key(*key, path);
      const bool is_merge = key->tag == "?" && key->text == "<<";
      if (const Pair* first = own.find(key->text); first != nullptr || (is_merge && merge != nullptr))
        throw Error(ErrorCode::config, where(key->mark, path.empty() ? key->text : path + "." + key->text),
                    "the key '" + text::excerpt(key->text) + "' is repeated; it is first in line " +
                        std::to_string(first != nullptr ? first->mark.line : merge->mark.line),
                    "keep one of them");
      if (is_merge)
        merge = value.get();
      else
        own.add({key->text, value.get(), key->mark}, false);
    }
    if (merge == nullptr) return own;
    Pairs pairs = merged(*merge, path, depth);
    for (const Pair& pair : own.all()) pairs.add(pair, true);
    return pairs;
  }

  void check_key(const Raw& key, const std::string& path) const {
    if (key.kind == Raw::Kind::list || key.kind == Raw::Kind::map)
      throw Error(ErrorCode::config, where(key.mark, path), "a key must be a word", kQuoteBraces);
    if (key.text.size() > kLongestKey)
      throw Error(ErrorCode::config, where(key.mark, ""),
                  "a key of " + std::to_string(key.text.size()) + " bytes; at most " +
                      std::to_string(kLongestKey) + " are read");
  }

  Pairs merged(const Raw& merge, const std::string& path, int depth) {
    std::vector<const Raw*> sources;
    if (merge.kind == Raw::Kind::map)
      sources.push_back(&merge);
    else if (merge.kind == Raw::Kind::list)
      for (const auto& item : merge.items) sources.push_back(item.get());
    else
      sources.push_back(nullptr);
    Pairs pairs;
    for (const Raw* source : sources) {
      if (source == nullptr || source->kind != Raw::Kind::map)
        throw Error(ErrorCode::config, where(merge.mark, path), "'<<' takes a map or a list of maps");
      const Pairs given = collect(*source, path, depth + 1);
      spend(1 + given.all().size(), 0, source->mark);
      for (const Pair& pair : given.all()) pairs.add(pair, false);
    }
    return pairs;
  }

  const std::string& file_;
  std::span<const std::string> keys_;  // empty: all
  size_t count_ = 0, bytes_ = 0;
};

Node tree(const std::string& yaml, const std::string& name, std::span<const std::string> keys) {
  if (yaml.size() > kLargestFile)
    throw Error(ErrorCode::config, name,
                "the file has " + std::to_string(yaml.size()) + " bytes; at most " +
                    std::to_string(kLargestFile) + " are read");
  const std::shared_ptr<const Raw> root = raw_tree(yaml, name);
  return root ? Resolver(name, keys).node(*root, root->mark, "") : Node::null({name, 0, 0}, "");
}

std::string content(const std::string& file) {
  refuse_irregular(file, ErrorCode::config);
  std::ifstream in(file, std::ios::binary);
  if (!in)
    throw Error(ErrorCode::config, file, "does not exist or cannot be read",
                "check the path; a relative path starts at the working directory");
  std::string text(kLargestFile + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kLargestFile)
    throw Error(ErrorCode::config, file, "the file has more than " + std::to_string(kLargestFile) + " bytes");
  return text;
}

}  // namespace

Node read_text(const std::string& yaml, const std::string& name) {
  return tree(yaml, name, {});
}

Node read(const std::string& file) {
  return read_only(file, {});
}

Node read_only(const std::string& file, std::span<const std::string> keys) {
  const std::string text = content(file);
  Node root;
  try {
    root = tree(text, file, keys);
  } catch (const Error& error) {
    const std::string& what = error.message();
    const bool unread = what.starts_with("YAML syntax") || what.starts_with("the file holds more than one");
    const std::string other = unread ? other_format(text) : "";
    throw Error(error.code(), error.where(), what, other.empty() ? error.hint() : other);
  }
  const std::string other = root.is_map() ? "" : other_format(text);
  if (!other.empty()) throw Error(ErrorCode::config, file, "expected a map of sections", other);
  return root;
}

}  // namespace heddle::config
