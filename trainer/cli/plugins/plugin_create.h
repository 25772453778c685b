// `heddle plugins new`: a project of a plugin, written from a template of the installed SDK.
#pragma once

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Writes the directory NAME, whose last part is the plugin's name. Throws Error{usage} for an invalid name or
// an existing directory, and Error{io}.
int create_plugin(const PluginsCommand& command);

}  // namespace heddle::cli
