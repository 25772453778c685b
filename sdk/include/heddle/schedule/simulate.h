// Simulation of a schedule: when each action runs for given costs, idle shares, and microbatches alive.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

// The costs of one stage, in any unit of time. transfer: between this stage and the next. Transfers run in
// parallel with computation, so only an action that needs the data waits.
struct Costs {
  double forward = 1, backward = 2, backward_input = 1, backward_weight = 1, transfer = 0;
};

// Returns the costs of one of `each` equal stages of a rank, given the costs of all its layers. Does not
// change `transfer`.
HEDDLE_API Costs stage_share(const Costs& rank, int each);

// Returns the cost of an action. Transfers, unshard, reshard and reduce cost nothing.
HEDDLE_API double cost_of(const Action& action, const Costs& costs);

// Start and end of an action.
struct TimeSpan {
  double start = 0, end = 0;
};

// The result of simulate().
struct Simulation {
  std::vector<std::vector<TimeSpan>> times;  // start and end of each action, [rank][step] like the table
  double length = 0;                         // from the first start to the last end over all ranks
  std::vector<double> idle;  // [rank]: fraction of `length` in which the rank does not compute
  // [rank]: maximum number of microbatches alive (from F to B, or to W), over its stages.
  std::vector<int> peak;
};

// Simulates a valid compute table or lowered table. Throws Error{internal} for a table that cannot run.
HEDDLE_API Simulation simulate(const ScheduleTable& table, std::span<const int> rank_of_stage,
                               const Costs& costs = {});
// Simulates with the costs of each stage, [stage].
HEDDLE_API Simulation simulate(const ScheduleTable& table, std::span<const int> rank_of_stage,
                               std::span<const Costs> costs);

// Returns only the peaks, which do not need times.
HEDDLE_API std::vector<int> peak_alive(const ScheduleTable& table);

}  // namespace heddle::schedule

// Schedules that plan for measured times and a memory limit.

namespace heddle {

// The input of such a schedule.
struct Measured {
  std::vector<schedule::Costs> stages;  // [stage]
  // Maximum number of microbatches alive per rank, averaged over the stages of the rank: two microbatches
  // on one of its two stages count as one.
  double limit = std::numeric_limits<double>::infinity();
};

// A schedule that plans for times. Offered like any other schedule; its plan() assumes equal times and no
// limit.
class HEDDLE_API ITimedSchedule : public IPipelineSchedule {
 public:
  ~ITimedSchedule() override;
  // Returns the table for these times. Throws Error{config} if no order keeps the limit.
  virtual ScheduleTable plan_for(int ranks, int stages, int microbatches, const Measured& measured) const = 0;
  // Returns false in a wrapper of a schedule without times, whose plan_for() is its plan().
  virtual bool plans_for_times() const { return true; }
};

namespace schedule {

// Wraps a schedule so that it plans for the times and the limit of `config`; returns it unchanged if neither
// is set. Throws Error{config} for a schedule that does not plan for times. plan() of the result throws
// Error{config} unless `times` has one row or one row per stage.
HEDDLE_API std::unique_ptr<IPipelineSchedule> with_times(std::unique_ptr<IPipelineSchedule> made,
                                                         const PipelineConfig& config);

}  // namespace schedule
}  // namespace heddle

// Lowering a table of compute actions to the table that a runner executes: transfers, gathering, reductions.

namespace heddle::schedule {

// Lowers a compute table. rank_of_stage: [stage] -> rank. Throws Error{input}, naming rank, step and action,
// if no rank can continue. Adds:
// - each send directly after its computation, and at that moment its receive at the end of the peer's row.
// The order of transfers is thus global, so that blocking transfers cannot deadlock. Stages of the same rank
// need no transfer. The order is by turns, as in PyTorch's lowering. If a receive would then be posted after
// its data is sent, the order is by simulated time with the default costs, so that no transfer starts late;
// - UNSHARD before a stage is used, and RESHARD when it is not one of the next three stages that are used;
// - REDUCE_GRAD after the last B or W of a stage.
HEDDLE_API ScheduleTable lower(const ScheduleTable& compute, std::span<const int> rank_of_stage);

// Returns a table of forwards only, for evaluation, with any placement and number of microbatches. Each
// microbatch passes the stages in order.
HEDDLE_API ScheduleTable forward_wave(std::span<const int> rank_of_stage, int ranks, int microbatches);

// Returns the warning for fewer microbatches than stages, which causes a large bubble, or "".
HEDDLE_API std::string bubble_warning(int microbatches, int stages);

}  // namespace heddle::schedule
