// The sections of a recipe that plugins read: each is named after the transform that it turns on.
#pragma once

#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/config/node.h"
#include "heddle/plugin/registry.h"

namespace heddle {

struct PluginSection {
  Node given;
  std::string name;                        // the plugin's own name for it: "freeze_config"
  const OfferedSchema* offered = nullptr;  // of one of the kinds that have a section
  std::string kind = {};
  Node values = {};  // every field
};

// Of a word that names no section: what to write, of the sections of heddle and of the plugins.
Error unknown_section(const Node& root, const std::string& key, const Node& value,
                      const std::vector<std::string>& of_plugins);

// The names of all sections that plugins offer.
std::vector<std::string> plugin_section_names(const PluginRegistry& plugins);

}  // namespace heddle
