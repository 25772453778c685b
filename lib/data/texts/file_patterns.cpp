// Lists directories and matches glob patterns component by component.
#include "lib/data/texts/file_patterns.h"

#include <algorithm>
#include <array>
#include <limits>
#include <system_error>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using Parts = std::vector<std::string_view>;

// Files that describe a data set and contain no rows.
constexpr std::array<std::string_view, 6> kNoteNames = {"README.md",         "config.json",
                                                        "dataset_info.json", "dataset_infos.json",
                                                        "dummy_data.zip",    "dataset_dict.json"};
constexpr size_t kAnyDepth = std::numeric_limits<size_t>::max();

Parts split_path(std::string_view path) {
  Parts out;
  while (!path.empty()) {
    const size_t slash = path.find('/');
    if (slash != 0) out.push_back(path.substr(0, slash));
    path = slash == path.npos ? std::string_view() : path.substr(slash + 1);
  }
  return out;
}

// Returns the number of bytes of the UTF-8 character at `at`.
size_t width_at(std::string_view text, size_t at) {
  size_t end = at + 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  return end - at;
}

// Returns the position of the ']' that closes the set opened at `at`, or npos: then '[' is literal.
size_t closing(std::string_view pattern, size_t at) {
  size_t end = at + 1;
  if (end < pattern.size() && pattern[end] == '!') ++end;
  if (end < pattern.size() && pattern[end] == ']') ++end;
  return pattern.find(']', end);
}

bool is_in_set(std::string_view character, std::string_view set) {
  const bool is_negated = set.starts_with('!');
  if (is_negated) set.remove_prefix(1);
  if (is_negated && set.empty()) return true;
  bool found = false;
  for (size_t at = 0; at < set.size();) {
    const std::string_view first = set.substr(at, width_at(set, at));
    at += first.size();
    std::string_view last = first;
    if (at + 1 < set.size() && set[at] == '-') {
      last = set.substr(at + 1, width_at(set, at + 1));
      at += 1 + last.size();
    }
    found |= first <= character && character <= last;
  }
  return found != is_negated;
}

// Matches `name` at `at` with one item of the pattern. Returns the consumed bytes of both, or zeros.
std::pair<size_t, size_t> match_item(std::string_view name, size_t at, std::string_view pattern,
                                     size_t item) {
  if (at >= name.size() || item >= pattern.size()) return {0, 0};
  const size_t width = width_at(name, at);
  if (pattern[item] == '?') return {width, 1};
  const size_t close = pattern[item] == '[' ? closing(pattern, item) : pattern.npos;
  if (close != pattern.npos)
    return is_in_set(name.substr(at, width), pattern.substr(item + 1, close - item - 1))
               ? std::pair{width, close + 1 - item}
               : std::pair<size_t, size_t>{0, 0};
  return name[at] == pattern[item] ? std::pair<size_t, size_t>{1, 1} : std::pair<size_t, size_t>{0, 0};
}

// Backtracks to the last `*` only, which may always match the rest.
bool matches_parts(const Parts& path, const Parts& pattern) {
  size_t at = 0, item = 0, star = pattern.size(), taken = 0;
  while (at < path.size()) {
    const bool is_star = item < pattern.size() && pattern[item] == "**";
    if (is_star && item + 1 == pattern.size()) return true;  // at least this component is left
    if (is_star) {
      star = item++;
      taken = at;
    } else if (item < pattern.size() && matches_part(path[at], pattern[item])) {
      ++at, ++item;
    } else if (star < pattern.size()) {
      item = star + 1;
      at = ++taken;
    } else {
      return false;
    }
  }
  return item == pattern.size();
}

// Number of components that begin with `.`, other than `.` and `..`.
std::ptrdiff_t hidden_parts(const Parts& parts) {
  return std::count_if(parts.begin(), parts.end(), [](std::string_view part) {
    return part.starts_with('.') && part.find_first_not_of('.') != part.npos;
  });
}

// Number of directories that begin with `__`.
std::ptrdiff_t special_parts(const Parts& parts) {
  return parts.empty() ? 0 : std::count_if(parts.begin(), parts.end() - 1, [](std::string_view part) {
    return part.starts_with("__");
  });
}

struct Pattern {
  std::string place;  // directory prefix with a trailing slash; empty: the root of the tree
  Parts parts;        // components from the first wildcard on; empty: none
  size_t depth = 0;   // depth of possible matches below the directory
};

Pattern parse_pattern(std::string_view text) {
  const auto refuse = [whole = text](const std::string& what, const std::string& hint) {
    throw Error(ErrorCode::input, "'" + text::excerpt(whole) + "'", what, hint);
  };
  const fs::path normal = fs::path(text).lexically_normal();
  if (text.starts_with('/') || text.find("://") != text.npos || (!normal.empty() && *normal.begin() == ".."))
    refuse("this pattern matches files outside the data set", "Use a path inside the data set's directory.");
  Pattern out;
  while (has_wildcards(text)) {
    const size_t slash = text.find('/');
    if (slash == text.npos || has_wildcards(text.substr(0, slash))) break;
    out.place += text.substr(0, slash + 1);
    text.remove_prefix(slash + 1);
  }
  out.parts = split_path(text);
  out.depth = out.parts.size();
  for (const std::string_view part : out.parts) {
    if (part.find("**") == part.npos) continue;
    if (part != "**")
      refuse("'**' is only a part of the path component '" + std::string(part) + "'",
             "Use '**' as a whole component: data/**/*.parquet.");
    out.depth = kAnyDepth;
  }
  return out;
}

void list_files(const fs::path& directory, const std::string& below, size_t depth,
                std::vector<std::string>& files) {
  std::error_code failed;
  for (auto entry = fs::directory_iterator(directory, failed); !failed && entry != fs::directory_iterator();
       entry.increment(failed)) {
    std::error_code ignored;
    const std::string name = below + entry->path().filename().string();
    if (entry->symlink_status(ignored).type() == fs::file_type::directory) {
      if (depth > 1) list_files(entry->path(), name + "/", depth - 1, files);
    } else if (entry->is_regular_file(ignored)) {
      files.push_back(name);
    }
  }
}

}  // namespace

bool has_wildcards(std::string_view pattern) {
  return pattern.find_first_of("*?[") != pattern.npos;
}

bool matches_part(std::string_view name, std::string_view pattern) {
  if (pattern == "*") return !name.empty();
  size_t at = 0, item = 0, star = pattern.npos, taken = 0;
  while (at < name.size()) {
    if (item < pattern.size() && pattern[item] == '*') {
      star = item++;
      taken = at;
    } else if (const auto [bytes, items] = match_item(name, at, pattern, item); bytes > 0) {
      at += bytes;
      item += items;
    } else if (star != pattern.npos) {
      item = star + 1;
      taken += width_at(name, taken);
      at = taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', item) == pattern.npos;
}

const FileTree::Listing& FileTree::listing(const std::string& place, size_t depth) {
  const auto [found, is_new] = listings_.try_emplace({place, depth});
  Listing& out = found->second;
  if (!is_new) return out;
  list_files(directory_ / place, "", depth, out.files);
  std::sort(out.files.begin(), out.files.end());
  for (const std::string& file : out.files) out.parts.push_back(split_path(file));
  return out;
}

std::vector<std::string> FileTree::matching(const std::string& pattern) {
  std::string_view text = pattern;
  while (text.ends_with('/')) text.remove_suffix(1);
  const Pattern parsed = parse_pattern(text);
  std::error_code ignored;
  if (!has_wildcards(text)) {
    const bool is_file = !text.empty() && fs::is_regular_file(directory_ / text, ignored);
    return is_file ? std::vector<std::string>{std::string(text)} : std::vector<std::string>();
  }
  const Listing& all = listing(parsed.place, parsed.depth);
  const auto hidden = hidden_parts(parsed.parts), special = special_parts(parsed.parts);
  const std::string_view own = parsed.parts.back();
  // Skips files whose beginning differs from the pattern's.
  const std::string_view first = parsed.parts.front(), begin = first.substr(0, first.find_first_of("*?["));
  std::vector<std::string> out;
  for (auto at = std::lower_bound(all.files.begin(), all.files.end(), begin); at != all.files.end(); ++at) {
    if (!at->starts_with(begin)) break;
    const Parts& parts = all.parts[static_cast<size_t>(at - all.files.begin())];
    const bool is_note = parts.back() != own &&
                         std::find(kNoteNames.begin(), kNoteNames.end(), parts.back()) != kNoteNames.end();
    if (!is_note && matches_parts(parts, parsed.parts) && hidden_parts(parts) == hidden &&
        special_parts(parts) == special)
      out.push_back(parsed.place + *at);
  }
  return out;
}

}  // namespace heddle
