// Opens libheddle_trainer, and so LibTorch, for the commands that need it.
#pragma once

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Runs the command in the library beside the program or in ../lib. Throws what it throws, and
// Error{internal} when the library is not there.
int run_in_library(const Command& command);

}  // namespace heddle::cli
