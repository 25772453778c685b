// YAML as it is written: kinds, tags and texts, before scalars are interpreted.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace heddle::config {

// The hint for a template or a variable that YAML takes for a map.
inline constexpr const char* kQuoteBraces =
    "Put the value in quotes: in YAML { begins a map and } ends one, also in {{ ... }}, {% ... %} and "
    "${...}.";

struct RawMark {
  int line = 0, column = 0;  // from 1
};

struct Raw {
  enum class Kind { null, scalar, list, map } kind = Kind::null;
  std::string tag;   // "?" plain, "!" quoted, else as written; "" for null
  std::string text;  // of a scalar
  std::vector<std::shared_ptr<Raw>> items;
  std::vector<std::pair<std::shared_ptr<Raw>, std::shared_ptr<Raw>>> entries;
  RawMark mark;
  size_t height = 0;     // levels of lists and maps from here down, aliases written out
  bool complete = true;  // false until its end is read: an alias inside its own anchor
};

// The one document of a text; null when it is empty. An alias shares what it names. Throws Error{config}:
// syntax, deeper than 100 with its aliases written out, an alias inside its own anchor, more than one
// document.
std::shared_ptr<const Raw> raw_tree(const std::string& yaml, const std::string& name);

}  // namespace heddle::config
