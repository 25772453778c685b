// Layouts for a person and for a script.
#pragma once

#include <string>

#include "lib/run/plan/search.h"

namespace heddle {

// A table of at most `top` layouts, fastest first, with what each loses to the first one; then layouts that
// do not fit.
std::string to_text(const FoundLayouts& found, size_t top);
// One JSON object on one line.
std::string to_json(const FoundLayouts& found, size_t top);
// One layout: its time and its memory by kind.
std::string explained(const PlannedLayout& layout);
// The comment above a recipe that was written for a layout.
std::string comment_of(const FoundLayouts& found, const PlannedLayout& layout);

}  // namespace heddle
