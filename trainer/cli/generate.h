// `heddle generate`: continues a text with a trained model.
#pragma once

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Returns the exit status. Throws Error.
int generate(const GenerateCommand& command);

}  // namespace heddle::cli
