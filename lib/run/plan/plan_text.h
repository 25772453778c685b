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
// One layout: its time, its memory and its collectives by kind.
std::string explained(const Layout& layout, const LayoutDetails& details);
// "fsdp2, tp 2, batch 1 on 64 x H100"
std::string title_of(const FoundLayouts& found, const Layout& layout);
// The YAML of a recipe with a layout: a comment of figures above it, and its section `plan`.
std::string recipe_text(const FoundLayouts& found, const PlannedLayout& layout, const Node& recipe);

}  // namespace heddle
