// Prints the offers of a plugin as text, as JSON, and as Markdown for its README.
#pragma once

#include <string>
#include <vector>

#include "heddle/plugin/registry.h"

namespace heddle::cli {

// An offer of a loaded plugin.
struct Offered {
  std::string kind;  // "strategy", ...
  const OfferedSchema* schema = nullptr;
};

// Returns all offers of the plugin, in the order of its manifest.
std::vector<Offered> offered_by(const PluginInfo& plugin, PluginRegistry& registry);

// Returns a heading and an aligned table of fields per offer.
std::string to_text(const PluginInfo& plugin, const std::vector<Offered>& offers);
// Returns one line: {"plugin", "version", "path", "offers": [{"kind", "name", "aliases", "fields": [...],
// ...}]}.
std::string to_json(const PluginInfo& plugin, const std::vector<Offered>& offers);
// Returns a table of fields per offer that has fields, with headings "### `name`" if there are several.
std::string to_markdown(const std::vector<Offered>& offers);

}  // namespace heddle::cli
