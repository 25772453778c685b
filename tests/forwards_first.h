// A pipeline schedule (GPipe): all forwards, then all backwards, with one stage per rank.
#pragma once

#include "heddle/schedule/schedule.h"

namespace heddle::tests {

class ForwardsFirst : public IPipelineSchedule {
 public:
  ScheduleTable plan(int ranks, int, int microbatches) const override {
    ScheduleTable table(ranks);
    for (int rank = 0; rank < ranks; ++rank)
      for (const Action::Kind kind : {Action::forward, Action::backward})
        for (int at = 0; at < microbatches; ++at) table[rank].push_back({kind, rank, at});
    return table;
  }
  int rank_of(int stage, int, int) const override { return stage; }
};

}  // namespace heddle::tests
