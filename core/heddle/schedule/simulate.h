// The simulator of a schedule: when each action runs for given costs, how idle ranks are, what stays alive.
#pragma once

#include <span>
#include <vector>

#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

// Of one stage, in any unit of time; `transfer` is between it and the next stage. Transfers run beside
// computation: what waits is the action that needs the data.
struct Costs {
  double forward = 1, backward = 2, backward_input = 1, backward_weight = 1, transfer = 0;
};

// The costs of a stage that takes 1 / `each` of what `rank` says of all layers of a rank; transfers as they
// are.
HEDDLE_API Costs share_of(const Costs& rank, int each);

// What an action takes; transfers and the actions of a stage: nothing.
HEDDLE_API double cost_of(const Action& action, const Costs& costs);

struct TimeSpan {
  double start = 0, end = 0;
};

struct Simulation {
  std::vector<std::vector<TimeSpan>> times;  // of each action, [rank][step] like the table
  double length = 0;                         // from the first start to the last end of all ranks
  std::vector<double> idle;                  // [rank]: the share of `length` in which it computes nothing
  std::vector<int> peak;  // [rank]: the most microbatches alive at once (from F to B, or to W), over its
                          // stages
};

// Of a compute table or a lowered one, checked before. Throws Error{internal} on a table that cannot run.
HEDDLE_API Simulation simulate(const ScheduleTable& table, std::span<const int> rank_of_stage,
                               const Costs& costs = {});
// The same with the costs of each stage, [stage].
HEDDLE_API Simulation simulate(const ScheduleTable& table, std::span<const int> rank_of_stage,
                               std::span<const Costs> costs);

// The peaks alone: no times are needed for them.
HEDDLE_API std::vector<int> peak_alive(const ScheduleTable& table);

}  // namespace heddle::schedule
