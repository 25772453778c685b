// PlainSchedule, a schedule for the kits: all forwards, then all backwards, whole or split.
#pragma once

#include "heddle/schedule/schedule.h"

namespace heddle::kits {

// A schedule with one stage per rank. Split: the input gradients of all microbatches come before any weight
// gradient.
class PlainSchedule : public IPipelineSchedule {
 public:
  explicit PlainSchedule(bool split) : split_(split) {}
  ScheduleTable plan(int ranks, int stages, int microbatches) const override {
    ScheduleTable table(ranks);
    for (int stage = 0; stage < stages; ++stage) {
      auto& row = table[stage];
      for (int i = 0; i < microbatches; ++i) row.push_back({Action::forward, stage, i});
      for (int i = 0; i < microbatches; ++i)
        row.push_back({split_ ? Action::backward_input : Action::backward, stage, i});
      for (int i = 0; split_ && i < microbatches; ++i) row.push_back({Action::backward_weight, stage, i});
    }
    return table;
  }
  int rank_of(int stage, int /*ranks*/, int /*stages*/) const override { return stage; }

 private:
  bool split_;
};

}  // namespace heddle::kits
