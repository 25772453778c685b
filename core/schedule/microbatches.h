// How many microbatches a rank's samples make.
#pragma once

#include <cstdint>
#include <string>

#include "heddle/base/export.h"
#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

// Microbatches in one pass through the schedule: samples / microbatch_size. Throws Error{config} when they do
// not divide.
HEDDLE_API int count_microbatches(int64_t samples, const PipelineConfig& config);

}  // namespace heddle::schedule
