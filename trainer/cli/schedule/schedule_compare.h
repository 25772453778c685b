// `heddle schedule --compare`: every schedule on offer for given sizes and times.
#pragma once

#include <functional>

#include "heddle/plugin/registry.h"
#include "heddle/schedule/simulate.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/schedule/schedule_times.h"

namespace heddle::cli {

// Times and limit as asked, for stages that share the model evenly.
Measured measured_of(const ScheduleCommand& command, const GivenTimes& times, int stages);

// The plan of a schedule: for the times, where the schedule is made for them.
ScheduleTable plan_of(const IPipelineSchedule& schedule, const ScheduleCommand& command,
                      const GivenTimes& times, int stages);

// Prints the table, or JSON. Returns the exit status.
int compare_schedules(const ScheduleCommand& command, PluginRegistry& plugins);

}  // namespace heddle::cli
