// Prints planned layouts as text and as JSON.
#pragma once

#include <string>

#include "heddle/base/error.h"
#include "lib/run/plan/search.h"

namespace heddle {

// A row of the table, from 1, with its details.
struct Explained {
  size_t row = 1;
  LayoutDetails details;
};

// Returns a table of at most `top` layouts, fastest first, with the time that each loses against the first
// one, then layouts that do not fit.
std::string to_text(const FoundLayouts& found, size_t top);
// Returns one JSON object a line: layouts that fit, fastest first, then those that do not. The first line
// also has the figures of the search, and the line of `explained` its memory by kind and its collectives.
std::string to_json(const FoundLayouts& found, size_t top, const Explained* explained = nullptr);
// Returns one layout in detail: its time by part, its memory by kind, and its collectives by group.
std::string to_text(const FoundLayouts& found, const Explained& explained);
// Returns the error of a search that found no layout that fits.
Error no_fitting_layout(const FoundLayouts& found);
// Returns "fsdp2, tp 2, batch 1 on 64 x H100".
std::string title_of(const FoundLayouts& found, const Layout& layout);
// Returns the YAML of a recipe with a layout, with the prediction in a comment at its top and in its section
// `plan`.
std::string recipe_text(const FoundLayouts& found, const PlannedLayout& layout);

}  // namespace heddle
