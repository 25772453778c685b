// Which parallelizer splits which axis, and with which fields.
#pragma once

#include <string_view>

#include "heddle/config/setup.h"
#include "heddle/plugin/registry.h"

namespace heddle::engine {

// The parallelizer on offer for an axis. Null: no plugin splits it. Throws Error{plugin_conflict} when two
// do.
const OfferedParallelizer* parallelizer_of(PluginRegistry& plugins, std::string_view axis);

// Fills Setup::parallelizers: of the strategy's fields each gets those that its schema knows, and a plan's
// name is replaced by the plan. Throws Error{config | plugin_conflict}.
void resolve_parallelizers(const Node& section, Setup& setup, PluginRegistry& plugins);

}  // namespace heddle::engine
