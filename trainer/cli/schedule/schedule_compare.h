// `heddle schedule --compare`: all available schedules for given sizes and times.
#pragma once

#include <functional>

#include "heddle/plugin/registry.h"
#include "heddle/schedule/simulate.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/schedule/schedule_times.h"

namespace heddle::cli {

// Returns the given times and limit for stages that share the model evenly.
Measured measured_of(const ScheduleCommand& command, const GivenTimes& times, int stages);

// Returns the plan of a schedule, for the given times if the schedule uses times.
ScheduleTable plan_of(const IPipelineSchedule& schedule, const ScheduleCommand& command,
                      const GivenTimes& times, int stages);

// Prints the table, or JSON. Returns the exit status.
int compare_schedules(const ScheduleCommand& command, PluginRegistry& plugins);

}  // namespace heddle::cli
