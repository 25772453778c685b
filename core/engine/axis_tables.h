// Which axes a run has: those of the engine, and those that its section asks plugins for.
#pragma once

#include "heddle/config/axes.h"
#include "heddle/config/node.h"
#include "heddle/plugin/registry.h"

namespace heddle::engine {

// The engine's axes; where the section has a key `*_size` that none of them has, also those of every
// parallelizer on offer. Throws Error{plugin_*}, also for two plugins that mean different axes by one name.
AxisTable axes_for(const Node& section, PluginRegistry& plugins);

}  // namespace heddle::engine
