// What `heddle check` asks of the sections beside `distributed:`.
#pragma once

#include "heddle/plugin/registry.h"

namespace heddle::cli {

// Throws Error{config} for a key that is no section, with the nearest one.
void check_sections(const Node& configuration);

PluginRegistry open_plugins(const Node& configuration, const Log& log);

}  // namespace heddle::cli
