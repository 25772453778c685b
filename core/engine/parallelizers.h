// Which parallelizer splits which axis, and with which fields.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/config/setup.h"
#include "heddle/plugin/registry.h"

namespace heddle::engine {

// The parallelizer on offer for an axis. Null: no plugin splits it. Of several, the one whose place is
// searched first, as for names, with a warning into `warnings` (may be null); one that was loaded from a file
// comes before all. Throws Error{plugin_conflict} for two of one place.
const OfferedParallelizer* parallelizer_of(PluginRegistry& plugins, std::string_view axis,
                                           std::vector<std::string>* warnings = nullptr);

// Fills Setup::parallelizers: of the strategy's fields each gets those that its schema knows, and a plan's
// name is replaced by the plan. Throws Error{config | plugin_conflict}.
void resolve_parallelizers(const Node& section, Setup& setup, PluginRegistry& plugins);

}  // namespace heddle::engine
