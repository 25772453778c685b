// No pipeline, as a schedule like any other: the null object of pipelines.
#include "core/schedule/single.h"

#include "heddle/base/error.h"

namespace heddle::schedule {
namespace {

class Single : public IPipelineSchedule {
 public:
  ScheduleTable plan(int ranks, int stages, int microbatches) const override {
    if (ranks != 1 || stages != 1)
      throw Error(ErrorCode::config, "schedule single",
                  "the schedule 'single' is one stage on one rank, and " + std::to_string(stages) +
                      " stages on " + std::to_string(ranks) + " ranks were asked",
                  "choose a pipeline schedule such as 1f1b");
    ScheduleTable table(1);
    for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
      table[0].push_back({Action::forward, 0, microbatch});
      table[0].push_back({Action::backward, 0, microbatch});
    }
    return table;
  }
  int rank_of(int, int, int) const override { return 0; }
};

}  // namespace

std::unique_ptr<IPipelineSchedule> make_single() {
  return std::make_unique<Single>();
}

}  // namespace heddle::schedule
