// `heddle data`: makes a token file from texts.
#pragma once

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Returns the exit status. Throws Error.
int data(const DataCommand& command);

}  // namespace heddle::cli
