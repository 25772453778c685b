// `heddle schedule --csv FILE`: needs no plugin, and so no LibTorch.
#pragma once

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Checks the table of the file and prints it. Throws Error{input}.
int show_schedule_file(const ScheduleCommand& command);

}  // namespace heddle::cli
