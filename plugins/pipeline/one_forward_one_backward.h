// The schedule "1f1b": a backward as soon as there is one (PipeDream-Flush, Narayanan et al.,
// arXiv:2006.09503).
#pragma once

#include "heddle/schedule/schedule.h"

namespace heddle::pipeline {

// One stage a rank. Rank r keeps min(microbatches, ranks - r) microbatches alive.
class OneForwardOneBackward : public IPipelineSchedule {
 public:
  ScheduleTable plan(int ranks, int stages, int microbatches) const override;
  int rank_of(int stage, int ranks, int stages) const override { return stage % ranks; }
};

}  // namespace heddle::pipeline
