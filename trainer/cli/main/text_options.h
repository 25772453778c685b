// CLI11 options of the commands data and generate.
#pragma once

#include <CLI/App.hpp>

#include "trainer/cli/commands.h"

namespace heddle::cli {

void add_data(CLI::App& app, DataCommand& to);
void add_show(CLI::App& app, ShowCommand& to);
void add_generate(CLI::App& app, GenerateCommand& to);

}  // namespace heddle::cli
