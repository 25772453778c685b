// `heddle plugins new`: creates a plugin project from a template of the installed SDK.
#pragma once

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Creates the directory NAME, whose last component is the plugin's name. Throws Error{usage} for an invalid
// name or an existing directory, and Error{io}.
int create_plugin(const PluginsCommand& command);

}  // namespace heddle::cli
