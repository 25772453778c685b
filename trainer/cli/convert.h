// `heddle convert`: a sharded model as a Hugging Face directory, and the other way round.
#pragma once

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Returns the exit status. Throws Error.
int convert(const ConvertCommand& command);

}  // namespace heddle::cli
