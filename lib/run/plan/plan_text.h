// Prints planned layouts as text and as JSON.
#pragma once

#include <string>

#include "lib/run/plan/search.h"

namespace heddle {

// Returns a table of at most `top` layouts, fastest first, with the time that each loses against the first
// one, then layouts that do not fit.
std::string to_text(const FoundLayouts& found, size_t top);
// Returns one JSON object on one line.
std::string to_json(const FoundLayouts& found, size_t top);
// Returns one layout in detail: its time by part and its memory by kind.
std::string explained(const PlannedLayout& layout);
// Returns the comment at the top of a recipe that is written for a layout.
std::string comment_of(const FoundLayouts& found, const PlannedLayout& layout);

}  // namespace heddle
