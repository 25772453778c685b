// The schedule "auto": a search for the shortest table for given times and memory limit.
#pragma once

#include "heddle/schedule/simulate.h"

namespace heddle::pipeline {

// Searches with one stage per rank, two in a V, or more in a loop. Deterministic: equal sizes and times give
// the same table. The result is never longer than a named schedule of the same placement within the limit.
class Auto : public ITimedSchedule {
 public:
  ScheduleTable plan(int ranks, int stages, int microbatches) const override;
  ScheduleTable plan_for(int ranks, int stages, int microbatches, const Measured& measured) const override;
  int rank_of(int stage, int ranks, int stages) const override;
  StagesPerRank stages_per_rank() const override { return {1, kAnyNumber}; }
};

}  // namespace heddle::pipeline
