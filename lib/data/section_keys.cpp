// Reads `_target_` by its last word, and small checks that several sections share.
#include "lib/data/section_keys.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/config/common_fields.h"

namespace heddle::recipe {

std::string component(const Node& section, std::span<const std::string> known, const std::string& absent) {
  const Node* target = section.find("_target_");
  if (target == nullptr || target->is_null()) return absent;
  return config::component_of(*target, known);
}

std::string where_of(const Node& section, const std::string& key) {
  const Node* value = section.find(key);
  return value != nullptr ? value->where() : section.where();
}

void require_positive(const Node& section, const std::string& key, std::optional<int64_t> value,
                      const std::string& condition, int64_t most) {
  if (value && *value > most)
    throw Error(ErrorCode::config, where_of(section, key),
                key + " must be at most " + std::to_string(most) + ", got " + std::to_string(*value));
  if (value && *value <= 0)
    throw Error(ErrorCode::config, where_of(section, key),
                key + " must be greater than 0" + condition + ", got " + std::to_string(*value));
}

bool SectionErrors::has(std::string_view unread_key) const {
  return std::find(unread.begin(), unread.end(), unread_key) != unread.end();
}

void SectionErrors::require_positive(const Node& section, const char* key, std::optional<int64_t> value,
                                     const std::string& condition, int64_t most) {
  check({key}, [&] { recipe::require_positive(section, key, value, condition, most); });
}

Node without_keys(const Node& map, std::span<const std::string> keys) {
  const std::set<std::string_view> dropped(keys.begin(), keys.end());
  std::vector<Node::Entry> entries;
  for (const Node::Entry& entry : map.entries())
    if (!dropped.contains(entry.first)) entries.push_back(entry);
  return Node::map(std::move(entries), map.mark(), map.path());
}

Node right_keys(const Node& section, const SectionErrors& found) {
  return without_keys(without_keys(section, found.unread), found.unknown);
}

bool is_field(const std::string& key, const Node& section, const std::vector<FieldInfo>& fields,
              SectionErrors& found) {
  std::vector<std::string> known;
  for (const FieldInfo& field : fields) known.push_back(field.key);
  if (std::find(known.begin(), known.end(), key) != known.end()) return true;
  found.unknown.push_back(key);
  const std::string meant = text::nearest(key, known);
  if (!meant.empty() && section.find(meant) == nullptr) found.unread.push_back(meant);
  return false;
}

std::string path_of(const std::string& word) {
  const char* home = std::getenv("HOME");
  const bool at_home = word == "~" || word.starts_with("~/");
  return at_home && home != nullptr ? home + word.substr(1) : word;
}

Node section_of(const Node& root, const std::string& key) {
  const Node* section = root.find(key);
  if (section != nullptr && !section->is_null()) return *section;
  Mark mark = root.mark();
  return Node::map({}, mark, key);
}

}  // namespace heddle::recipe
