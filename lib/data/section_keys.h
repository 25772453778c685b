// Reads `_target_` by its last word, and small checks that several sections share.
#pragma once

#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/config/node.h"
#include "heddle/config/schema.h"

namespace heddle::recipe {

// The known word that `_target_` ends in ("torch.optim.AdamW" and "optim.py:AdamW" are AdamW), or `absent`
// when there is none. Throws Error{config} that names the line and what there is.
std::string component(const Node& section, std::span<const std::string> known, const std::string& absent);

// The place of a key, or of the section when the key is not given.
std::string where_of(const Node& section, const std::string& key);

// Throws Error{config} "KEY must be greater than 0, got X", and for more than `most`.
void require_positive(const Node& section, const std::string& key, std::optional<int64_t> value,
                      const std::string& condition = "", int64_t most = std::numeric_limits<int64_t>::max());
// Of a number of samples or tokens: so that products of two of them, in bytes, are numbers of 64 bits.
inline constexpr int64_t kLargestSize = (int64_t{1} << 31) - 1;

// What is wrong in one section: its errors, and the keys without a usable value.
class SectionErrors {
 public:
  Errors errors;
  std::vector<std::string> unread;   // their values are wrong, or they are misspelt
  std::vector<std::string> unknown;  // keys that no field has

  bool has(std::string_view unread_key) const;
  // A check of these keys, left out where one of them is unread; after an error they are.
  template <class Work>
  void check(std::initializer_list<const char*> keys, const Work& work) {
    for (const char* key : keys)
      if (has(key)) return;
    if (!errors.attempt(work)) unread.insert(unread.end(), keys.begin(), keys.end());
  }
  // Checks one key as require_positive() does.
  void require_positive(const Node& section, const char* key, std::optional<int64_t> value,
                        const std::string& condition = "",
                        int64_t most = std::numeric_limits<int64_t>::max());
};

// Reads each key of the section alone. `found` gets what is wrong; these fields keep their initialisers.
// Throws Error{config} for a section that is not a map.
template <class Struct>
Struct read_fields(const ConfigSchema<Struct>& schema, const Node& section, SectionErrors& found);

// Returns the map without these keys.
Node without_keys(const Node& map, std::span<const std::string> keys);

// The section without the keys that are unread or unknown.
Node right_keys(const Node& section, const SectionErrors& found);

// A path as it is written in a configuration: "~" and "~/x" are in the home directory.
std::string path_of(const std::string& word);

// A section of the root that is absent or null reads as an empty map, with the place of the root.
Node section_of(const Node& root, const std::string& key);

// Whether a field has the key; a key that no field has is noted, and the field that it misspells.
bool is_field(const std::string& key, const Node& section, const std::vector<FieldInfo>& fields,
              SectionErrors& found);

template <class Struct>
Struct read_fields(const ConfigSchema<Struct>& schema, const Node& section, SectionErrors& found) {
  if (!section.is_map()) return schema.read(section);  // throws
  for (const Node::Entry& entry : section.entries()) {
    const bool known = is_field(entry.first, section, schema.fields(), found);
    const bool right =
        found.errors.attempt([&] { schema.read(Node::map({entry}, section.mark(), section.path())); });
    if (known && !right) found.unread.push_back(entry.first);
  }
  return schema.read(right_keys(section, found));
}

}  // namespace heddle::recipe
