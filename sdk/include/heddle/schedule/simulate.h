// The simulator of a schedule: when each action runs for given costs, idle shares, microbatches alive.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

// Of one stage, in any unit of time; `transfer` is between it and the next stage. Transfers run beside
// computation: only the action that needs the data waits.
struct Costs {
  double forward = 1, backward = 2, backward_input = 1, backward_weight = 1, transfer = 0;
};

// The costs of one of `each` equal stages of a rank, from the costs of all its layers; transfers unchanged.
HEDDLE_API Costs share_of(const Costs& rank, int each);

// The cost of an action; transfers and unshard, reshard and reduce cost nothing.
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

// Simulates a checked compute table or lowered table. Throws Error{internal} for a table that cannot run.
HEDDLE_API Simulation simulate(const ScheduleTable& table, std::span<const int> rank_of_stage,
                               const Costs& costs = {});
// The same with the costs of each stage, [stage].
HEDDLE_API Simulation simulate(const ScheduleTable& table, std::span<const int> rank_of_stage,
                               std::span<const Costs> costs);

// The peaks alone, which need no times.
HEDDLE_API std::vector<int> peak_alive(const ScheduleTable& table);

}  // namespace heddle::schedule

// A schedule that is planned for measured times and a memory limit.

namespace heddle {

// The input of such a plan.
struct Measured {
  std::vector<schedule::Costs> stages;  // [stage]
  // The most microbatches that a rank may keep alive, counted over all of the rank's stages: two microbatches
  // on one of its two stages count as one.
  double limit = std::numeric_limits<double>::infinity();
};

// Offered like any other schedule; its plan() is for equal times and no limit.
class HEDDLE_API ITimedSchedule : public IPipelineSchedule {
 public:
  ~ITimedSchedule() override;
  // Throws Error{config} if no order keeps the limit.
  virtual ScheduleTable plan_for(int ranks, int stages, int microbatches, const Measured& measured) const = 0;
  // False in a wrapper of a schedule without times; its plan_for() is then its plan().
  virtual bool plans_for_times() const { return true; }
};

namespace schedule {

// The schedule, planned for the times and the limit of `config` in place of equal times; unchanged if neither
// is set. Throws Error{config} for a schedule that does not plan for times; its plan() throws it if there are
// neither one nor as many rows as stages.
HEDDLE_API std::unique_ptr<IPipelineSchedule> with_times(std::unique_ptr<IPipelineSchedule> made,
                                                         const PipelineConfig& config);

}  // namespace schedule
}  // namespace heddle

// From a table of compute actions to the full table that a runner executes: transfers, gathering, reductions.

namespace heddle::schedule {

// Adds to a compute table:
// - each send right after its computation and, at that moment, its receive at the end of the peer's row: one
// global order of transfers, so that blocking transfers cannot deadlock; none between two stages of a rank.
// The order is by turns, as in PyTorch's lowering; if a receive would then be posted after its data is sent,
// it is by simulated time with the default costs, so that no transfer starts late;
// - UNSHARD before a stage is used and RESHARD when it leaves the three stages used next;
// - REDUCE_GRAD after the last B or W of a stage.
// rank_of_stage: [stage] -> rank. Throws Error{input}, naming rank, step and action, when no rank can
// continue.
HEDDLE_API ScheduleTable lower(const ScheduleTable& compute, std::span<const int> rank_of_stage);

// Forwards alone, for evaluation: any placement and number of microbatches; each goes through the stages in
// turn.
HEDDLE_API ScheduleTable forward_wave(std::span<const int> rank_of_stage, int ranks, int microbatches);

// The warning of a run with fewer microbatches than stages, whose bubble is large; "": there are enough.
HEDDLE_API std::string bubble_warning(int microbatches, int stages);

}  // namespace heddle::schedule
