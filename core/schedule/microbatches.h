// How many microbatches a rank's samples make, and the warning when they are few.
#pragma once

#include <cstdint>
#include <string>

#include "heddle/base/export.h"
#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

// Microbatches in one pass through the schedule: samples / microbatch_size. Throws Error{config} when they do
// not divide.
HEDDLE_API int count_microbatches(int64_t samples, const PipelineConfig& config);

// The warning about the bubble, or "" when there are enough microbatches.
HEDDLE_API std::string bubble_warning(int microbatches, int stages);

}  // namespace heddle::schedule
