// `heddle plan`: which layouts of a run fit a machine, and how fast they are.
#pragma once

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Returns the exit status: 2 where no layout fits. Throws Error.
int plan(const PlanCommand& command);

}  // namespace heddle::cli
