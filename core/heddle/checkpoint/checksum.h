// A checksum of bytes for files that are read long after they were written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "heddle/base/export.h"

namespace heddle::checkpoint {

// Sixteen hexadecimal digits. Four lanes of 64-bit words, each step a bijection: a change inside one word is
// always seen. It finds damage, and is no defence against a forger.
HEDDLE_API std::string checksum(std::string_view bytes);

}  // namespace heddle::checkpoint
