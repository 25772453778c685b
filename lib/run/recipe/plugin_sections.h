// Sections of a recipe that plugins read; each is named after the transform that it turns on.
#pragma once

#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/config/node.h"
#include "heddle/plugin/registry.h"

namespace heddle {

struct PluginSection {
  Node node;
  std::string name;                        // name of the plugin's offer: "freeze_config"
  const OfferedSchema* offered = nullptr;  // an offer of a kind that has a section
  std::string kind = {};
  Node values = {};  // all fields
};

// Returns the error for an unknown section. The hint suggests a section of heddle or of the plugins.
Error unknown_section(const Node& root, const std::string& key, const Node& value,
                      const std::vector<std::string>& of_plugins);

// Returns the names of all sections that plugins offer.
std::vector<std::string> plugin_section_names(const PluginRegistry& plugins);

}  // namespace heddle
