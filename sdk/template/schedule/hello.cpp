// A pipeline schedule: breadth first, with any number of stages per rank. A schedule does not deal with
// tensors or transfers.
#include "heddle/sdk.h"

namespace hello_plugin {

class Hello : public heddle::IPipelineSchedule {
 public:
  // Returns a row per rank: the forward and the backward of each of its stages on every microbatch, once.
  heddle::ScheduleTable plan(int ranks, int stages, int microbatches) const override {
    heddle::ScheduleTable table(ranks);
    for (int stage = 0; stage < stages; ++stage)
      for (int i = 0; i < microbatches; ++i)
        table[rank_of(stage, ranks, stages)].push_back({heddle::Action::forward, stage, i});
    for (int stage = stages - 1; stage >= 0; --stage)
      for (int i = 0; i < microbatches; ++i)
        table[rank_of(stage, ranks, stages)].push_back({heddle::Action::backward, stage, i});
    return table;
  }
  int rank_of(int stage, int ranks, int /*stages*/) const override { return stage % ranks; }
  heddle::StagesPerRank stages_per_rank() const override { return {1, heddle::kAnyNumber}; }
};

}  // namespace hello_plugin

HEDDLE_PLUGIN("hello", "0.1.0", "schedule hello") {
  plugin.schedule<hello_plugin::Hello>("hello");
}
