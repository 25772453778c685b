// Numbers as C writes them, whatever the locale of the host.
#pragma once

#include <string>

#include "heddle/base/export.h"

namespace heddle::text {

// The number at the front of the text, with a point in every locale. 0 without a number, infinity beyond the
// range.
HEDDLE_API double real(const std::string& text);

}  // namespace heddle::text
