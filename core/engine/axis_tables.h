// The axes of a run: the engine's, and those of plugins that its section uses.
#pragma once

#include <string>
#include <vector>

#include "heddle/config/axes.h"
#include "heddle/config/node.h"
#include "heddle/plugin/registry.h"

namespace heddle::engine {

// The engine's axes; if the section has another key `*_size`, also those of every offered parallelizer.
// Throws Error{plugin_*}, also for two plugins that mean different axes by one name.
AxisTable axes_for(const Node& section, PluginRegistry& plugins);

// The keys of the sizes of all axes that parallelizers bring, for messages; a plugin that cannot be opened
// has none.
std::vector<std::string> axis_keys_of_plugins(PluginRegistry& plugins);

}  // namespace heddle::engine
