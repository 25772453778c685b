// How deep the brackets of a JSON text nest, found without recursion.
#pragma once

#include <string_view>

#include "heddle/base/export.h"

namespace heddle::text {

// Whether objects and arrays lie in each other more than `most` deep. JSON libraries print and copy such a
// text recursively, so a file of a megabyte of '[' would end the program. A text that is no JSON has an
// answer too.
HEDDLE_API bool nests_deeper(std::string_view json, int most);

// Deeper than any file of ours or of Hugging Face's.
inline constexpr int kDeepest = 64;

}  // namespace heddle::text
