// Checks of keys that several sections share.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/config/node.h"
#include "heddle/config/schema.h"

namespace heddle::recipe {

// Returns a check that `_target_` is null or ends in a known name ("torch.optim.AdamW" and "optim.py:AdamW"
// end in AdamW).
Check ends_in(std::vector<std::string> known);

// Returns the place of a key, or of the section if the key is not given.
std::string key_location(const Node& section, const std::string& key);

// Maximum number of samples or tokens: the product of two such numbers in bytes fits into 64 bits.
inline constexpr int64_t kLargestSize = (int64_t{1} << 31) - 1;
// Range from 1 to `most`. The error of a smaller number is "KEY must be greater than 0 CONDITION, got X".
Range<int64_t> positive(const std::string& condition = "",
                        int64_t most = std::numeric_limits<int64_t>::max());

// Returns the map without these keys.
Node without_keys(const Node& map, std::span<const std::string> keys);

// Returns the section without the keys that are unread or unknown.
Node right_keys(const Node& section, const SectionErrors& found);

// Expands "~" and "~/x" in a path of a configuration.
std::string expand_home(const std::string& word);

// Returns a section of the root; an absent or null section gives an empty map with the place of the root.
Node find_section(const Node& root, const std::string& key);

}  // namespace heddle::recipe
