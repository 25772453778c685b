// String functions: the nearest word, joining, JSON strings, sizes.
#pragma once

#include <cstdint>
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

// A value as a message quotes it: control characters escaped, and of more than `most` bytes the beginning and
// the number of bytes, "aaaa... (2000000 bytes)".
HEDDLE_API std::string excerpt(std::string_view value, size_t most = 200);

}  // namespace heddle::text

namespace heddle {

// A size for a person, in the largest unit of which there is at least one: "512 B", "4.71 MiB", "6.00 EiB".
HEDDLE_API std::string bytes_text(double bytes);
HEDDLE_API std::string bytes_text(int64_t bytes);

}  // namespace heddle
