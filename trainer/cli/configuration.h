// A configuration file with the overrides of the command line.
#pragma once

#include <span>
#include <string>

#include "heddle/config/node.h"
#include "trainer/cli/commands.h"

namespace heddle::cli {

// Throws Error{config}.
Node read_configuration(const std::string& file, std::span<const Override> overrides);

}  // namespace heddle::cli
