// `heddle plugins`: lists, inspects and checks plugins.
#pragma once

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Returns the exit status. Throws Error.
int plugins(const PluginsCommand& command);

}  // namespace heddle::cli
