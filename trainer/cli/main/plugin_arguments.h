// CLI11 options of `heddle plugins`.
#pragma once

#include "trainer/cli/commands.h"

namespace CLI {
class App;
}

namespace heddle::cli {

// Adds the command and its subcommands, which write into `to` and `json`.
void add_plugins(CLI::App& app, PluginsCommand& to, bool& json);

}  // namespace heddle::cli
