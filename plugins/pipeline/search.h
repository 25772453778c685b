// The schedule "auto": a search for the shortest table for given times within a limit of memory.
#pragma once

#include "heddle/schedule/simulate.h"

namespace heddle::pipeline {

// One stage a rank, two in a V, or more in a loop. Deterministic: the same sizes and times give the same
// table. Never longer than a named schedule of the same placement that keeps the limit.
class Auto : public ITimedSchedule {
 public:
  ScheduleTable plan(int ranks, int stages, int microbatches) const override;
  ScheduleTable plan_for(int ranks, int stages, int microbatches, const Measured& measured) const override;
  int rank_of(int stage, int ranks, int stages) const override;
  StagesPerRank stages_per_rank() const override { return {1, kAnyNumber}; }
};

}  // namespace heddle::pipeline
