// String functions: the nearest word, joining, JSON strings.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/export.h"

namespace heddle::text {

// The candidate with the smallest edit distance (case ignored), or "" when none is close enough to be meant.
HEDDLE_API std::string nearest(std::string_view word, std::span<const std::string> candidates);

// "a, b, c" with the separator given.
HEDDLE_API std::string join(std::span<const std::string> words, std::string_view separator = ", ");

// The word in lower case (ASCII).
HEDDLE_API std::string lower(std::string_view word);

// A JSON string with its quotes; control characters and quotes are escaped, invalid UTF-8 is replaced.
HEDDLE_API std::string quoted(std::string_view value);

}  // namespace heddle::text
