// Allocations that failed, in numbers.
#pragma once

#include <exception>
#include <optional>

#include "heddle/base/error.h"

namespace heddle {

// Error{memory} where `thrown` is a failed allocation: what was asked for, what this process holds and is
// allowed, what the machine has. Empty for anything else. Knows std::bad_alloc, and the allocators of
// LibTorch by their words, so that their stack traces stay away.
HEDDLE_API std::optional<Error> out_of_memory(const std::exception& thrown);

}  // namespace heddle
