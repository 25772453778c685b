// String functions: nearest match, joining, JSON strings, sizes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/export.h"

namespace heddle::text {

// Returns the candidate with the smallest edit distance, ignoring case, or "" if no candidate is close
// enough.
HEDDLE_API std::string nearest(std::string_view word, std::span<const std::string> candidates);

// Joins the words: "a, b, c".
HEDDLE_API std::string join(std::span<const std::string> words, std::string_view separator = ", ");

// Returns the word in lower case (ASCII only).
HEDDLE_API std::string lower(std::string_view word);

// Returns the value as a JSON string with quotes. Escapes control characters and quotes, replaces invalid
// UTF-8.
HEDDLE_API std::string quoted(std::string_view value);

// Returns the value for a message: control characters are escaped, and a value of more than `most` bytes is
// shortened to its beginning and its size, "aaaa... (2000000 bytes)".
HEDDLE_API std::string excerpt(std::string_view value, size_t most = 200);

}  // namespace heddle::text

namespace heddle {

// Returns a size for a person, in the largest unit that gives at least 1: "512 B", "4.71 MiB", "6.00 EiB".
HEDDLE_API std::string bytes_text(double bytes);
HEDDLE_API std::string bytes_text(int64_t bytes);

}  // namespace heddle
