// The model that a recipe's section describes, without weights: keys of a config.json and their overrides.
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
  std::set<std::string> idle;  // keys without effect
};

// Returns the keys of a config.json for dequantized weights. Throws Error{input}.
Node dequantized_keys(const std::filesystem::path& config_json);

// Returns the model that the keys `own` of the file describe with these overrides; an overriding map replaces
// the whole map. Warns of a key without effect. Throws Error{config} at the key if it resembles a known key,
// is the model's type, or changes which parameters exist or their shapes. Throws too if the file cannot be
// read without the keys and the keys are not exported, because the export could not be read.
Overridden read_overridden(const Node& own, const std::filesystem::path& config_json,
                           const ConfigOverrides& overrides, PluginRegistry& plugins,
                           std::vector<std::string>& warnings);

// Returns the model that the file describes with these overrides, which may change shapes.
std::shared_ptr<const ModelSpec> read_with_keys(const std::filesystem::path& config_json, const Node& keys,
                                                PluginRegistry& plugins);

// Replaces keys in the text of a config.json.
void add_to_config(std::string& config_json, const Node& keys);

// Returns the config.json that a section names, by its path or the path of a model. Throws Error{input} if it
// does not exist.
std::filesystem::path config_file(const std::filesystem::path& path);

// Returns the model of a map of keys, with the keys of model.backend if the model has experts.
std::shared_ptr<const ModelSpec> read_map(const ModelSection& section, PluginRegistry& plugins,
                                          std::vector<std::string>& warnings);

// Returns the section with the recipe's own keys added to those of config.json: multi-token prediction heads,
// if the family has them, and the router defaults of AutoModel's modules, if the section names them. Warns of
// heads that AutoModel trains and heddle does not support. Throws Error{not_built} if the recipe asks for
// heads and the family has none.
ModelSection with_recipe_keys(ModelSection section, PluginRegistry& plugins,
                              std::vector<std::string>& warnings);

}  // namespace heddle
