// The times that a schedule is compared and planned with: as given in words, or measured by a run.
#pragma once

#include <vector>

#include "heddle/schedule/simulate.h"
#include "trainer/cli/commands.h"

namespace heddle::cli {

// Costs of equal stretches of the model, from its first layer to its last: one stretch of all layers where
// --times gave them, the stages of the run where a trace did (its last step; milliseconds). Throws
// Error{input} where the file is no trace of a pipeline.
struct GivenTimes {
  std::vector<schedule::Costs> stretches;
  bool measured = false;
};
GivenTimes times_of(const ScheduleCommand& command);

// The costs of each of `stages` stages: what their parts of the stretches take. A transfer is the mean one.
std::vector<schedule::Costs> costs_of_stages(const GivenTimes& times, int stages);

// The mean over the ranks of what all layers of a rank take.
schedule::Costs costs_of_rank(const GivenTimes& times, int ranks);

}  // namespace heddle::cli
