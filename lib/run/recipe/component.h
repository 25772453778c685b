// Reads `_target_` by its last word, and small checks that several sections share.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>

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

// A path as it is written in a configuration: "~" and "~/x" are in the home directory.
std::string path_of(const std::string& word);

// A section of the root that is absent or null reads as an empty map, with the place of the root.
Node section_of(const Node& root, const std::string& key);

}  // namespace heddle::recipe
