// `heddle train`: trains the model of a configuration.
#pragma once

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Returns the exit status. Throws Error.
int train(const TrainCommand& command);

}  // namespace heddle::cli
