// Reads a configuration file and applies the overrides of the command line.
#pragma once

#include <span>
#include <string>

#include "heddle/config/node.h"
#include "heddle/plugin/registry.h"
#include "trainer/cli/commands.h"

namespace heddle::cli {

// Returns the configuration with the overrides applied. Throws Error{config}.
Node with_overrides(Node root, std::span<const Override> overrides);

// Reads a file and applies the overrides. Throws Error{config}.
Node read_configuration(const std::string& file, std::span<const Override> overrides);

// Opens the plugins of a run's file, of which only `plugins:` is read; without a file, those of the search
// path. Throws Error.
PluginRegistry plugins_of_file(const std::string& file);

}  // namespace heddle::cli
