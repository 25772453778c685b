// Allocations that failed, in numbers.
#pragma once

#include <exception>
#include <optional>

#include "heddle/base/error.h"

namespace heddle {

// Error{memory} where `thrown` is a failed allocation: the size asked for, what this process holds and may
// have, what the machine has. Empty for anything else. Recognises std::bad_alloc, and LibTorch's allocators
// by their messages, which it replaces because they contain stack traces.
HEDDLE_API std::optional<Error> out_of_memory(const std::exception& thrown);

}  // namespace heddle
