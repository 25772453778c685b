// A pretrained model with keys in place of those of its config.json.
#pragma once

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "heddle/model/family.h"
#include "heddle/plugin/registry.h"
#include "lib/run/recipe/sections.h"

namespace heddle {

struct Overridden {
  std::shared_ptr<const ModelSpec> spec;
  std::set<std::string> idle;  // keys that change nothing
};

// The model that the file describes with these keys in place of its own; a map replaces a map whole. A
// warning for a key that changes nothing. Throws Error{config} at the key: one that resembles a known key,
// the model's type, or one that changes which parameters there are or their shapes; and where the file cannot
// be read without the keys, unless they are exported, as nothing could read the export.
Overridden read_overridden(const std::filesystem::path& config_json, const ConfigOverrides& overrides,
                           PluginRegistry& plugins, std::vector<std::string>& warnings);

// The model that the file describes with these keys in place of its own, of any shapes.
std::shared_ptr<const ModelSpec> read_with_keys(const std::filesystem::path& config_json, const Node& keys,
                                                PluginRegistry& plugins);

// The text of a config.json with these keys in place of its own.
void add_to_config(std::string& config_json, const Node& keys);

}  // namespace heddle
