// A timed schedule with its times given.
#include "heddle/schedule/simulate.h"

#include <string>
#include <utility>

#include "heddle/base/error.h"

namespace heddle {

ITimedSchedule::~ITimedSchedule() = default;

namespace schedule {
namespace {

class TimesGiven : public ITimedSchedule {
 public:
  TimesGiven(std::unique_ptr<IPipelineSchedule> made, const ITimedSchedule& timed,
             const PipelineConfig& config)
      : made_(std::move(made)), timed_(timed), config_(config) {}
  ScheduleTable plan(int ranks, int stages, int microbatches) const override {
    return timed_.plan_for(ranks, stages, microbatches, measured(ranks, stages));
  }
  ScheduleTable plan_for(int ranks, int stages, int microbatches, const Measured& measured) const override {
    return timed_.plan_for(ranks, stages, microbatches, measured);
  }
  int rank_of(int stage, int ranks, int stages) const override {
    return made_->rank_of(stage, ranks, stages);
  }
  StagesPerRank stages_per_rank() const override { return made_->stages_per_rank(); }

 private:
  Measured measured(int ranks, int stages) const {
    Measured out;
    const size_t rows = config_.times.size();
    if (rows > 1 && rows != static_cast<size_t>(stages))
      throw Error(ErrorCode::config, config_.where,
                  "pp_schedule_times has " + std::to_string(rows) + " rows, and the pipeline has " +
                      std::to_string(stages) + " stages",
                  "give one row for all layers of a rank, or one for each stage");
    for (int stage = 0; stage < stages; ++stage) {
      if (rows == 0) {
        out.stages.emplace_back();
        continue;
      }
      const auto& row = config_.times[rows == 1 ? 0 : stage];
      const Costs costs{row[0], row[1] + row[2], row[1], row[2], row[3]};
      out.stages.push_back(rows == 1 ? stage_share(costs, stages / ranks) : costs);
    }
    if (config_.limit) out.limit = *config_.limit;
    return out;
  }

  const std::unique_ptr<IPipelineSchedule> made_;
  const ITimedSchedule& timed_;  // the same
  const PipelineConfig config_;
};

}  // namespace

std::unique_ptr<IPipelineSchedule> with_times(std::unique_ptr<IPipelineSchedule> made,
                                              const PipelineConfig& config) {
  if (config.times.empty() && !config.limit) return made;
  const auto* timed = dynamic_cast<const ITimedSchedule*>(made.get());
  if (timed == nullptr || !timed->plans_for_times())
    throw Error(ErrorCode::config, config.where,
                std::string(config.times.empty() ? "pp_schedule_limit" : "pp_schedule_times") +
                    " is given, and the schedule '" +
                    (config.table.empty() ? config.schedule : config.table) + "' plans for no times",
                "set pp_schedule: auto, or leave the times and the limit out");
  const ITimedSchedule& with = *timed;
  return std::make_unique<TimesGiven>(std::move(made), with, config);
}

}  // namespace schedule
}  // namespace heddle
