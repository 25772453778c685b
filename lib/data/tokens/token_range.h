// The smallest and the largest of many tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "lib/data/tokens/token_file.h"

namespace heddle {

// Of `count` integers of the type, in the widest registers of the processor. `from` is aligned for the type.
TokenRange range_of(TokenType type, const std::byte* from, int64_t count);

// Of all values that the type has.
TokenRange range_of(TokenType type);

}  // namespace heddle
