// Loads libheddle_trainer, and with it LibTorch, for the commands that need it.
#pragma once

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Runs the command in the library next to the program or in ../lib. Throws the command's errors, and
// Error{internal} if the library is missing.
int run_in_library(const Command& command);

}  // namespace heddle::cli
