// `heddle prepare`: makes the files of prepared samples that a run needs, or says that they are there.
#pragma once

#include "lib/run/recipe/sections.h"
#include "trainer/cli/commands.h"

namespace heddle::cli {

// Lines on standard error. Nothing is said where `is_quiet`.
PreparationOptions preparation_of(bool is_quiet);

// Returns the exit status. Throws Error.
int prepare(const PrepareCommand& command);

}  // namespace heddle::cli
