// How deep the brackets of a JSON text nest, found without recursion.
#pragma once

#include <string_view>

#include "heddle/base/export.h"

namespace heddle::text {

// Whether objects and arrays are nested more than `most` deep. JSON libraries print and copy recursively, so
// a megabyte of '[' would overflow the stack. Also defined for a text that is not JSON.
HEDDLE_API bool nests_deeper(std::string_view json, int most);

// Deeper than any file of heddle or of Hugging Face.
inline constexpr int kDeepest = 64;

}  // namespace heddle::text
