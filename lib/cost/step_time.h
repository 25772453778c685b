// The time of a whole step: of one rank, or of the pipeline's ranks under their schedule.
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
  // Parts of `seconds`, of the rank that is busy longest.
  double compute = 0;
  double launches = 0;  // the device waits for the host
  double bubble = 0;    // of the pipeline
  // The device waits for collectives, by group; "update": what follows the schedule of a pipeline.
  std::map<std::string, double> waits;
  // What a person would change first: "compute", "host", "bubble", or the name of a group.
  std::string limit() const;
};

// Without a pipeline: `dry_passes` microbatches of `passes` were recorded; each of the others takes what the
// shortest one took.
StepTime step_time(const RankTime& rank, int64_t dry_passes, int64_t passes);

// A pipeline: `ranks` holds the time of each of its ranks, recorded with fewer microbatches; `table` is the
// schedule of all microbatches of a pass. An action takes the least time that it took on a microbatch; what
// it took beyond that, and what follows the schedule, comes once.
struct PipelineTimes {
  std::span<const RankTime* const> ranks;
  const ScheduleTable& table;
  std::span<const int> rank_of_stage;
  int64_t passes = 1;
};
StepTime step_time(const PipelineTimes& times);

}  // namespace heddle
