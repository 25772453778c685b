// A custom schedule with several stages per rank, each of which runs all microbatches before the next stage
// (arXiv:2211.05953).
#include "heddle/sdk.h"

namespace acme {

class Looped : public heddle::IPipelineSchedule {
 public:
  heddle::ScheduleTable plan(int ranks, int stages, int microbatches) const override {
    heddle::ScheduleTable table(ranks);
    for (int stage = 0; stage < stages; ++stage)
      for (int i = 0; i < microbatches; ++i)
        table[stage % ranks].push_back({heddle::Action::forward, stage, i});
    for (int stage = stages - 1; stage >= 0; --stage)
      for (int i = 0; i < microbatches; ++i)
        table[stage % ranks].push_back({heddle::Action::backward, stage, i});
    return table;
  }
  int rank_of(int stage, int ranks, int /*stages*/) const override { return stage % ranks; }
  heddle::StagesPerRank stages_per_rank() const override { return {1, heddle::kAnyNumber}; }
};

}  // namespace acme

HEDDLE_PLUGIN("looped", "0.1.0", "schedule looped") {
  plugin.schedule<acme::Looped>("looped");
}
