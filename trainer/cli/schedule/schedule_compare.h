// `heddle schedule --compare`: all available schedules for given sizes and times.
#pragma once

#include <functional>
#include <vector>

#include "heddle/plugin/registry.h"
#include "heddle/schedule/simulate.h"
#include "trainer/cli/commands.h"

namespace heddle::cli {

// Costs of equal parts of the model, from the first layer to the last: one part with all layers for --times,
// or the stages of the run for a trace (its last step, in milliseconds). times_of() throws Error{input} if
// the file is not a trace of a pipeline.
struct GivenTimes {
  std::vector<schedule::Costs> stretches;
  bool measured = false;
};
GivenTimes times_of(const ScheduleCommand& command);

// Returns the costs per stage, from the overlap of each stage with the parts. A transfer has the mean cost.
std::vector<schedule::Costs> costs_of_stages(const GivenTimes& times, int stages);

// Returns the cost of all layers of a rank, averaged over ranks.
schedule::Costs costs_of_rank(const GivenTimes& times, int ranks);

// Returns the given times and limit for stages that share the model evenly.
Measured measured_of(const ScheduleCommand& command, const GivenTimes& times, int stages);

// Returns the plan of a schedule, for the given times if the schedule uses times.
ScheduleTable plan_of(const IPipelineSchedule& schedule, const ScheduleCommand& command,
                      const GivenTimes& times, int stages);

// Prints the table, or JSON. Returns the exit status.
int compare_schedules(const ScheduleCommand& command, PluginRegistry& plugins);

}  // namespace heddle::cli
