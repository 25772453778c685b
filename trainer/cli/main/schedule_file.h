// `heddle schedule --csv FILE`, which needs no plugin and no LibTorch.
#pragma once

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Checks the table in the file and prints it. Throws Error{input}.
int show_schedule_file(const ScheduleCommand& command);

}  // namespace heddle::cli
