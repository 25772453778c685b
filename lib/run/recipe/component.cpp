// Reads `_target_` by its last word, and small checks that several sections share.
#include "lib/run/recipe/component.h"

#include <cstdlib>

#include "heddle/base/error.h"
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
