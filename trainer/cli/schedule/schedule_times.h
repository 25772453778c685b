// Times for planning and comparing schedules, given on the command line or measured in a run.
#pragma once

#include <vector>

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

}  // namespace heddle::cli
