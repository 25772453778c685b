// Reads `_target_` by its last word, and small checks that several sections share.
#include "trainer/recipe/component.h"

#include <algorithm>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/base/text.h"

namespace heddle::recipe {

std::string component(const Node& section, std::span<const std::string> known, const std::string& absent) {
  const Node* target = section.find("_target_");
  if (target == nullptr || target->is_null()) return absent;
  const std::string& given = target->as_text();
  const std::string word =
      given.substr(given.find_last_of(".:") == given.npos ? 0 : given.find_last_of(".:") + 1);
  if (std::find(known.begin(), known.end(), word) != known.end()) return word;
  const std::string nearest = text::nearest(word, known);
  throw Error(ErrorCode::config, target->where(),
              "unknown component '" + given + "'; there is: " + text::join(known),
              nearest.empty() ? "" : "did you mean '" + nearest + "'?");
}

std::string where_of(const Node& section, const std::string& key) {
  const Node* value = section.find(key);
  return value != nullptr ? value->where() : section.where();
}

void require_positive(const Node& section, const std::string& key, std::optional<int64_t> value,
                      const std::string& condition) {
  if (value && *value <= 0)
    throw Error(ErrorCode::config, where_of(section, key),
                key + " must be greater than 0" + condition + ", got " + std::to_string(*value));
}

Node section_of(const Node& root, const std::string& key) {
  const Node* section = root.find(key);
  if (section != nullptr && !section->is_null()) return *section;
  Mark mark = root.mark();
  return Node::map({}, mark, key);
}

}  // namespace heddle::recipe
