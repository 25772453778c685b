// The data sets that a recipe can name: those of heddle and those of plugins.
#pragma once

#include <string>
#include <vector>

#include "heddle/plugin/dataset.h"
#include "heddle/plugin/registry.h"
#include "lib/run/recipe/sections.h"

namespace heddle {

// The data set of this name: of heddle itself, or of a plugin. Null: there is none.
const OfferedDataset* find_dataset(PluginRegistry& plugins, const std::string& name);

// The section with its keys as the plugin that offers the set reads them, and the length of its rows where
// they say it; token files are read with the recipe. `not_built` grows as in a Recipe. Throws Error{config}
// for a set that nothing offers, and for its keys.
DatasetSection resolve_dataset(DatasetSection section, PluginRegistry& plugins,
                               std::vector<std::string>& not_built);

// The keys that every set of texts has beside its plugin's fields.
std::vector<FieldInfo> text_key_fields();

}  // namespace heddle
