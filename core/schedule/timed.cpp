// A timed schedule with its times given.
#include "heddle/schedule/simulate.h"

#include <string>
#include <utility>

#include "heddle/base/error.h"

namespace heddle {

ITimedSchedule::~ITimedSchedule() = default;

namespace schedule {
namespace {

class TimesGiven : public IPipelineSchedule {
 public:
  TimesGiven(std::unique_ptr<IPipelineSchedule> made, const ITimedSchedule& timed, const PipelineWords& words)
      : made_(std::move(made)), timed_(timed), words_(words) {}
  ScheduleTable plan(int ranks, int stages, int microbatches) const override {
    return timed_.plan_for(ranks, stages, microbatches, measured(ranks, stages));
  }
  int rank_of(int stage, int ranks, int stages) const override {
    return made_->rank_of(stage, ranks, stages);
  }
  StagesPerRank stages_per_rank() const override { return made_->stages_per_rank(); }

 private:
  Measured measured(int ranks, int stages) const {
    Measured out;
    const size_t rows = words_.times.size();
    if (rows > 1 && rows != static_cast<size_t>(stages))
      throw Error(ErrorCode::config, words_.where,
                  "pp_schedule_times has " + std::to_string(rows) + " rows, and the pipeline has " +
                      std::to_string(stages) + " stages",
                  "give one row for all layers of a rank, or one for each stage");
    for (int stage = 0; stage < stages; ++stage) {
      if (rows == 0) {
        out.stages.emplace_back();
        continue;
      }
      const auto& row = words_.times[rows == 1 ? 0 : stage];
      const Costs costs{row[0], row[1] + row[2], row[1], row[2], row[3]};
      out.stages.push_back(rows == 1 ? share_of(costs, stages / ranks) : costs);
    }
    if (words_.limit) out.limit = *words_.limit;
    return out;
  }

  const std::unique_ptr<IPipelineSchedule> made_;
  const ITimedSchedule& timed_;  // the same
  const PipelineWords words_;
};

}  // namespace

std::unique_ptr<IPipelineSchedule> with_times(std::unique_ptr<IPipelineSchedule> made,
                                              const PipelineWords& words) {
  if (words.times.empty() && !words.limit) return made;
  const auto* timed = dynamic_cast<const ITimedSchedule*>(made.get());
  if (timed == nullptr || !timed->plans_for_times())
    throw Error(ErrorCode::config, words.where,
                std::string(words.times.empty() ? "pp_schedule_limit" : "pp_schedule_times") +
                    " is given, and the schedule '" + (words.table.empty() ? words.schedule : words.table) +
                    "' plans for no times",
                "set pp_schedule: auto, or leave the times and the limit out");
  const ITimedSchedule& with = *timed;
  return std::make_unique<TimesGiven>(std::move(made), with, words);
}

}  // namespace schedule
}  // namespace heddle
