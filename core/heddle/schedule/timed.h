// A schedule that is planned for measured times and a limit of memory.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "heddle/schedule/schedule.h"
#include "heddle/schedule/simulate.h"
#include "heddle/schedule/words.h"

namespace heddle {

// What is known of a run before it is planned.
struct Measured {
  std::vector<schedule::Costs> stages;  // [stage]
  // The most microbatches that a rank may keep alive, each on all of the rank's stages: two microbatches on
  // one of its two stages are one.
  double limit = std::numeric_limits<double>::infinity();
};

// Offered like any other schedule; its plan() is for equal times and no limit.
class HEDDLE_API ITimedSchedule : public IPipelineSchedule {
 public:
  ~ITimedSchedule() override;
  // Throws Error{config} when no order keeps the limit.
  virtual ScheduleTable plan_for(int ranks, int stages, int microbatches, const Measured& measured) const = 0;
  // A wrapper of a schedule that may know no times says so here; its plan_for() is then its plan().
  virtual bool plans_for_times() const { return true; }
};

namespace schedule {

// The schedule, planned for the times and the limit of the words (which see) in place of equal ones; itself
// where they give neither. Throws Error{config} where it plans for no times; its plan() throws that where the
// rows are neither one nor as many as the stages.
HEDDLE_API std::unique_ptr<IPipelineSchedule> with_times(std::unique_ptr<IPipelineSchedule> made,
                                                         const PipelineWords& words);

}  // namespace schedule
}  // namespace heddle
