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
// Returns one layout in detail: its time by part, its memory by kind, and its collectives by group.
std::string explained(const Layout& layout, const LayoutDetails& details);
// Returns "fsdp2, tp 2, batch 1 on 64 x H100".
std::string title_of(const FoundLayouts& found, const Layout& layout);
// Returns the YAML of a recipe with a layout, with the prediction in a comment at its top and in its section
// `plan`.
std::string recipe_text(const FoundLayouts& found, const PlannedLayout& layout, const Node& recipe);

}  // namespace heddle
