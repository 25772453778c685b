// Time of a whole step, from one rank or from the pipeline's ranks and their schedule.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heddle/schedule/schedule.h"
#include "heddle/schedule/simulate.h"
#include "lib/cost/time/rank_time.h"

namespace heddle {

// Returns "3.11 s" or "612 ms".
std::string seconds_text(double seconds);

struct StepTime {
  double seconds = 0;
  // Parts of `seconds` on the busiest rank.
  double bubble = 0;                      // pipeline bubble
  std::map<std::string, double> by_kind;  // work by kind_of(), and kHost
  // Waits of the device for collectives, by group; "update": work after the pipeline schedule.
  std::map<std::string, double> waits;
  // Returns the parts above by name, as reports print them, without parts of zero seconds.
  std::vector<std::pair<std::string, double>> parts() const;
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

// Returns the costs of each stage from the shortest action of each kind: [stage].
std::vector<schedule::Costs> stage_costs(std::span<const RankTime* const> ranks, size_t stages);

}  // namespace heddle
