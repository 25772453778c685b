// Which axes a run has: those of the engine, and those that its section asks plugins for.
#pragma once

#include "heddle/config/axes.h"
#include "heddle/config/node.h"
#include "heddle/plugin/registry.h"

namespace heddle::engine {

// The engine's axes; if the section has another key `*_size`, also those of every offered parallelizer.
// Throws Error{plugin_*}, also for two plugins that mean different axes by one name.
AxisTable axes_for(const Node& section, PluginRegistry& plugins);

}  // namespace heddle::engine
