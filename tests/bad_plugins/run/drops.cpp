// Bad at run time: the schedule drops the last backward when there are more than three microbatches.
#include <algorithm>

#include "heddle/sdk.h"

namespace {

class Drops : public heddle::IPipelineSchedule {
 public:
  heddle::ScheduleTable plan(int ranks, int, int microbatches) const override {
    heddle::ScheduleTable table(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      for (int i = 0; i < microbatches; ++i) table[rank].push_back({heddle::Action::forward, rank, i});
      for (int i = 0; i < std::min(microbatches, 3); ++i)
        table[rank].push_back({heddle::Action::backward, rank, i});
    }
    return table;
  }
  int rank_of(int stage, int, int) const override { return stage; }
};

}  // namespace

HEDDLE_PLUGIN("drops", "0.1.0", "schedule drops") {
  plugin.schedule<Drops>("drops");
}
