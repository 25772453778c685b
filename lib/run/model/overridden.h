// The model that a recipe's section describes, before there are weights: its keys, and those of a recipe in
// their place.
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

// The keys of a config.json for dequantized weights. Throws Error{input}.
Node dequantized_keys(const std::filesystem::path& config_json);

// The model that the keys `own` of the file describe with these keys in place of its own; a map replaces a
// map whole. A warning for a key that changes nothing. Throws Error{config} at the key: one that resembles a
// known key, the model's type, or one that changes which parameters there are or their shapes; and where the
// file cannot be read without the keys, unless they are exported, as nothing could read the export.
Overridden read_overridden(const Node& own, const std::filesystem::path& config_json,
                           const ConfigOverrides& overrides, PluginRegistry& plugins,
                           std::vector<std::string>& warnings);

// The model that the file describes with these keys in place of its own, of any shapes.
std::shared_ptr<const ModelSpec> read_with_keys(const std::filesystem::path& config_json, const Node& keys,
                                                PluginRegistry& plugins);

// The text of a config.json with these keys in place of its own.
void add_to_config(std::string& config_json, const Node& keys);

// The config.json that a section names: its path, or that of a model. Throws Error{input} where it is not
// there.
std::filesystem::path config_file(const std::filesystem::path& given);

// Of a map of keys, with those of model.backend where the model has experts.
std::shared_ptr<const ModelSpec> read_map(const ModelSection& section, PluginRegistry& plugins,
                                          std::vector<std::string>& warnings);

// The section with the keys that a recipe gives beside config.json's among them: of multi-token prediction
// heads, where the family has such heads, and what AutoModel's modules add to routers, where the section
// names them. A warning for heads that AutoModel trains and that are not built. Throws Error{not_built} where
// heads are asked for and the family has none.
ModelSection with_recipe_keys(ModelSection section, PluginRegistry& plugins,
                              std::vector<std::string>& warnings);

}  // namespace heddle
