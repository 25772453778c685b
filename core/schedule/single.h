// The built-in schedule "single": no pipeline.
#pragma once

#include <memory>

#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

// One rank, one stage, one microbatch after another: 0F0 0B0 0F1 0B1 ... Gradient accumulation is this
// schedule with more microbatches.
HEDDLE_API std::unique_ptr<IPipelineSchedule> make_single();

}  // namespace heddle::schedule
