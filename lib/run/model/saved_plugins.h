// The plugins that the run which saved a model named in its file.
#pragma once

#include <memory>

#include "heddle/model/family.h"
#include "heddle/plugin/registry.h"
#include "lib/run/model/find_model.h"

namespace heddle {

// Reads the model's config.json as engine::read_model() does. A saved file is data, so code that it names is not
// loaded: where no plugin offers the family, the hint names the plugins of the run and the option --config of
// the commands. Throws what engine::read_model() throws.
HEDDLE_API std::shared_ptr<const ModelSpec> read_saved_model(const ModelPlace& place, PluginRegistry& plugins);

}  // namespace heddle
