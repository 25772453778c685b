// Tokens of a Python literal: numbers and the escapes of a string.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "heddle/config/node.h"

namespace heddle::config {

// 12, 1_000, 0x1f, 0o17, 0b1, 1.5, 1e3 without a sign; nothing when Python would refuse it (007, 1__0, 1j).
std::optional<Node> python_number(std::string_view digits, bool negative, const Mark& mark,
                                  const std::string& path);

// Reads one escape at the start of `text` (which begins with a backslash) onto `out`. Returns the number of
// characters used; 0 when it is cut off or names a character by its name.
size_t python_escape(std::string_view text, std::string& out);

}  // namespace heddle::config
