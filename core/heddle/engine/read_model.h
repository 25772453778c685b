// Models by their config.json, through the plugins.
#pragma once

#include <filesystem>
#include <memory>

#include "heddle/base/export.h"
#include "heddle/config/node.h"
#include "heddle/model/family.h"
#include "heddle/plugin/registry.h"

namespace heddle::engine {

// The model that these keys of a config.json describe, read by the plugin that offers its model_type. Throws
// Error{config} at the key; a model_type that no plugin offers is one, with those there are and where they
// were searched.
HEDDLE_API std::shared_ptr<const ModelSpec> read_model(const Node& keys, PluginRegistry& plugins,
                                                       UnknownKeys unknown = UnknownKeys::refused);

// The same from a file; throws Error{input}. Unknown keys are passed over, unless they look like a known one.
HEDDLE_API std::shared_ptr<const ModelSpec> read_model(const std::filesystem::path& config_json,
                                                       PluginRegistry& plugins);

}  // namespace heddle::engine
