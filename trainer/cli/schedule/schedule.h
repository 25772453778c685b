// `heddle schedule NAME`: the table that a plugin's schedule plans; `heddle schedule --compare`: all of them.
#pragma once

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Throws Error{usage} for sizes that the schedule does not take, Error{plugin_*}.
int schedule(const ScheduleCommand& command);

}  // namespace heddle::cli
