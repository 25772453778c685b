// From a table of compute actions to the full table that a runner executes: transfers, gathering, reductions.
#pragma once

#include <span>

#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

// Adds to a compute table, as PyTorch's lowering does:
// - each send right after its computation and, at that moment, its receive at the end of the peer's row: one
//   global order of transfers, so that blocking transfers cannot deadlock; none between two stages of a rank;
// - UNSHARD before a stage is used and RESHARD when it leaves the three stages used next;
// - REDUCE_GRAD after the last B or W of a stage.
// rank_of_stage: [stage] -> rank. Throws Error{input}, naming rank, step and action, when no rank can go on.
HEDDLE_API ScheduleTable lower(const ScheduleTable& compute, std::span<const int> rank_of_stage);

// The forwards alone, in their order: for evaluation.
HEDDLE_API ScheduleTable forward_only(const ScheduleTable& compute);

}  // namespace heddle::schedule
