// The parallelizer of each axis, with its fields.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/config/setup.h"
#include "heddle/plugin/registry.h"

namespace heddle::engine {

// The offered parallelizer of an axis. Null: no plugin splits it. Of several, the one whose directory is
// searched first, with a warning in `warnings` (may be null); one loaded from a file comes before all. Throws
// Error{plugin_conflict} for two in one directory.
const OfferedParallelizer* parallelizer_of(PluginRegistry& plugins, std::string_view axis,
                                           std::vector<std::string>* warnings = nullptr);

// Fills Setup::parallelizers: each gets the fields of the strategy that its schema has; a plan's name is
// replaced by the plan. Throws Error{config | plugin_conflict}.
void resolve_parallelizers(const Node& section, Setup& setup, PluginRegistry& plugins);

// A parallelizer without an axis, which acts where `distributed:` has a block of its name.
struct BatchPlugin {
  std::string key;  // as written
  const OfferedParallelizer* offered = nullptr;
  Node value;  // null: it does not act
};
using BatchPlugins = std::vector<BatchPlugin>;
BatchPlugins find_batch_plugins(const Node& section, PluginRegistry& plugins);

// Adds them to Setup::parallelizers, after those of the axes and in the order of the file. Throws
// Error{config}.
void resolve_batch_plugins(const BatchPlugins& found, Setup& setup);

}  // namespace heddle::engine
