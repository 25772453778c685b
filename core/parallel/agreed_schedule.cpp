// Tables of schedules from rank 0, as the text of their file.
#include "core/parallel/agreed_schedule.h"

#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/schedule/schedule.h"
#include "heddle/schedule/simulate.h"

namespace heddle::parallel {

bool is_searched(const IPipelineSchedule& schedule) {
  const auto* timed = dynamic_cast<const ITimedSchedule*>(&schedule);
  return timed != nullptr && timed->plans_for_times();
}

ScheduleTable AgreedSchedule::plan(int ranks, int stages, int microbatches) const {
  const auto known = tables_.find({ranks, stages, microbatches});
  if (known != tables_.end()) return known->second;
  const std::string sizes = std::to_string(stages) + " stages on " + std::to_string(ranks) + " ranks, " +
                            std::to_string(microbatches) + " microbatches";
  const std::string text = rendezvous_.meet(
      "the schedule's table", sizes, [&](std::span<const std::string> asked) -> std::vector<std::string> {
        for (size_t rank = 0; rank < asked.size(); ++rank)
          if (asked[rank] != sizes)
            throw Error(
                ErrorCode::mesh, "pipeline schedule",
                "rank 0 plans for " + sizes + ", rank " + std::to_string(rank) + " for " + asked[rank],
                "give every rank batches of the same number of rows");
        const ScheduleTable table = searched_->plan(ranks, stages, microbatches);
        return {schedule::to_csv(table, schedule::placement(*searched_, ranks, stages, "pipeline schedule"))};
      });
  return tables_[{ranks, stages, microbatches}] = schedule::parse_table(text, "the table of rank 0").table;
}

}  // namespace heddle::parallel
