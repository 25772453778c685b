// A schedule that is planned for measured times and a limit of memory.
#pragma once

#include <limits>
#include <vector>

#include "heddle/schedule/schedule.h"
#include "heddle/schedule/simulate.h"

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
};

}  // namespace heddle
