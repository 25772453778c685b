// `heddle check`: validates configurations and prints the resolved setup.
#pragma once

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Returns the exit status. Throws Error.
int check(const CheckCommand& command);

}  // namespace heddle::cli
