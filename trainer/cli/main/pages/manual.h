// The manual page of the program, made from the table of commands.
#pragma once

#include <string>

#include "trainer/cli/main/pages/command_table.h"

namespace heddle::cli {

// heddle(1) as roff, for the macros of man(7).
std::string manual_page(const CommandTable& table);

}  // namespace heddle::cli
