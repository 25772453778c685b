// The time of a whole step: of one rank, or of the pipeline's ranks under their schedule.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heddle/schedule/schedule.h"
#include "heddle/schedule/simulate.h"
#include "lib/cost/rank_time.h"

namespace heddle {

struct StepTime {
  double seconds = 0;
  // Parts of `seconds`, of the rank that is busy longest.
  double bubble = 0;                      // of the pipeline
  std::map<std::string, double> by_kind;  // work as in kind_of(), and kHost
  // The device waits for collectives, by group; "update": what follows the schedule of a pipeline.
  std::map<std::string, double> waits;
  // These parts by names for people, without those that take no time.
  std::vector<std::pair<std::string, double>> parts() const;
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

// The least that each stage's actions took.
std::vector<schedule::Costs> stage_costs(std::span<const RankTime* const> ranks, size_t stages);

}  // namespace heddle
