// Numbers as C writes them, whatever the locale of the host.
#pragma once

#include <string>

#include "heddle/base/export.h"

namespace heddle::text {

// The number at the front of the text: 0.5 is a half also where the host's locale has a comma. 0 where there
// is none, infinity beyond the range.
HEDDLE_API double real(const std::string& text);

}  // namespace heddle::text
