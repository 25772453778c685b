// Manual page of the program, generated from the table of commands.
#pragma once

#include <string>

#include "trainer/cli/main/pages/command_table.h"

namespace heddle::cli {

// Returns heddle(1) as roff for the man(7) macros.
std::string manual_page(const CommandTable& table);

}  // namespace heddle::cli
