// Checks of keys that several sections share.
#include "lib/data/section_keys.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/config/common_fields.h"

namespace heddle::recipe {

Check ends_in(std::vector<std::string> known) {
  return {text::join(known), [known = std::move(known)](const Node& target) {
            if (!target.is_null()) config::component_of(target, known);
          }};
}

std::string key_location(const Node& section, const std::string& key) {
  const Node* value = section.find(key);
  return value != nullptr ? value->where() : section.where();
}

Range<int64_t> positive(const std::string& condition, int64_t most) {
  return {1, most, "must be greater than 0" + (condition.empty() ? "" : " " + condition)};
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

std::string expand_home(const std::string& word) {
  const char* home = std::getenv("HOME");
  const bool at_home = word == "~" || word.starts_with("~/");
  return at_home && home != nullptr ? home + word.substr(1) : word;
}

Node find_section(const Node& root, const std::string& key) {
  const Node* section = root.find(key);
  if (section != nullptr && !section->is_null()) return *section;
  Mark mark = root.mark();
  return Node::map({}, mark, key);
}

}  // namespace heddle::recipe
