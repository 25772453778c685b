// The schedule "gpipe": all forwards, then all backwards (Huang et al. 2019, arXiv:1811.06965).
#pragma once

#include "heddle/schedule/schedule.h"

namespace heddle::pipeline {

// One stage a rank. Every microbatch stays alive until the backwards begin.
class GPipe : public IPipelineSchedule {
 public:
  ScheduleTable plan(int ranks, int stages, int microbatches) const override;
  int rank_of(int stage, int ranks, int stages) const override { return stage % ranks; }
};

}  // namespace heddle::pipeline
