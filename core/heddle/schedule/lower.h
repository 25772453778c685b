// From a table of compute actions to the full table that a runner executes: transfers, gathering, reductions.
#pragma once

#include <span>

#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

// Adds to a compute table:
// - each send right after its computation and, at that moment, its receive at the end of the peer's row: one
//   global order of transfers, so that blocking transfers cannot deadlock; none between two stages of a rank.
//   The moments are turns, as in PyTorch's lowering; where a receive would then be posted after its data is
//   sent, they are times by the default costs, so that no transfer starts late;
// - UNSHARD before a stage is used and RESHARD when it leaves the three stages used next;
// - REDUCE_GRAD after the last B or W of a stage.
// rank_of_stage: [stage] -> rank. Throws Error{input}, naming rank, step and action, when no rank can go on.
HEDDLE_API ScheduleTable lower(const ScheduleTable& compute, std::span<const int> rank_of_stage);

// Forwards alone, for evaluation: any placement and number of microbatches; each goes through the stages one
// behind the other.
HEDDLE_API ScheduleTable forward_wave(std::span<const int> rank_of_stage, int ranks, int microbatches);

}  // namespace heddle::schedule
