// `heddle data show`: prepared samples as text, with what is trained on.
#pragma once

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Returns the exit status. Throws Error.
int show_samples(const ShowCommand& command);

}  // namespace heddle::cli
