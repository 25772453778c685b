// Time of a whole step, from one rank or from the pipeline's ranks and their schedule.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "heddle/schedule/schedule.h"
#include "lib/cost/rank_time.h"

namespace heddle {

struct StepTime {
  double seconds = 0;
  // Parts of `seconds` on the busiest rank.
  double compute = 0;
  double launches = 0;  // the device waits for the host
  double bubble = 0;    // pipeline bubble
  // Waits of the device for collectives, by group; "update": work after the pipeline schedule.
  std::map<std::string, double> waits;
  // The part to optimize first: "compute", "host", "bubble", or the name of a group.
  std::string limit() const;
};

// Without a pipeline: `dry_passes` of `passes` microbatches were recorded; each other one takes the time of
// the shortest.
StepTime step_time(const RankTime& rank, int64_t dry_passes, int64_t passes);

// For a pipeline: `ranks` has the recorded time of each rank, with fewer microbatches; `table` is the
// schedule of all microbatches of a pass. Each action takes its minimum recorded time; the excess, and the
// work after the schedule, count once.
struct PipelineTimes {
  std::span<const RankTime* const> ranks;
  const ScheduleTable& table;
  std::span<const int> rank_of_stage;
  int64_t passes = 1;
};
StepTime step_time(const PipelineTimes& times);

}  // namespace heddle
