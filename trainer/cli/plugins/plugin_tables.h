// Prints what a plugin offers: for a person, as JSON, and as the Markdown of its README.
#pragma once

#include <string>
#include <vector>

#include "heddle/plugin/registry.h"

namespace heddle::cli {

// One thing that a loaded plugin offers, with its kind.
struct Offered {
  std::string kind;  // "strategy", ...
  const OfferedSchema* schema = nullptr;
};

// Everything that the plugin offers, in the order of its manifest.
std::vector<Offered> offered_by(const PluginInfo& plugin, PluginRegistry& registry);

// A heading and an aligned table of fields for each offered thing.
std::string to_text(const PluginInfo& plugin, const std::vector<Offered>& offers);
// One line: {"plugin", "version", "path", "offers": [{"kind", "name", "aliases", "fields": [...], ...}]}.
std::string to_json(const PluginInfo& plugin, const std::vector<Offered>& offers);
// A table of fields for each thing on offer that has any, under "### `name`" where there are several.
std::string to_markdown(const std::vector<Offered>& offers);

}  // namespace heddle::cli
