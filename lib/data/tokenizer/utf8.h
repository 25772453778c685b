// Where a text stops being UTF-8.
#pragma once

#include <cstddef>
#include <string_view>

#include "heddle/base/export.h"

namespace heddle {

// The place of the first byte that begins no character of UTF-8 (RFC 3629), or text.size() where all do.
HEDDLE_API size_t valid_utf8(std::string_view text);

}  // namespace heddle
