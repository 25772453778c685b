// Data sets that a recipe can name: heddle's own and those of plugins.
#pragma once

#include <string>
#include <vector>

#include "heddle/plugin/dataset.h"
#include "heddle/plugin/registry.h"
#include "lib/run/recipe/sections.h"

namespace heddle {

// Returns the data set with this name, heddle's own or a plugin's. Null: none.
const OfferedDataset* find_dataset(PluginRegistry& plugins, const std::string& name);

// Returns the section with its keys as the set's plugin reads them, and with the row length if the keys give
// it; token files are read together with the recipe. `not_built` grows as in a Recipe. Throws Error{config}
// for a set that nothing offers, and for its keys.
DatasetSection resolve_dataset(DatasetSection section, PluginRegistry& plugins,
                               std::vector<std::string>& not_built);

// Returns the keys that every set of texts has in addition to its plugin's fields.
std::vector<FieldInfo> text_key_fields();

}  // namespace heddle
