// Many sizes for one schedule: each plan is checked, lowered and checked again.
#pragma once

#include <filesystem>
#include <string>

#include "heddle/schedule/schedule.h"

namespace heddle::kits {

// Tries 2,048 sizes, those with the fewest actions first, so that the first that fails is the smallest; a
// schedule that takes long to plan is tried for 20 seconds. It may refuse sizes (with an Error of its own),
// but not all of them. Returns what held; throws with the sizes, the fault and the table's rows.
std::string plans_tables(const IPipelineSchedule& made, const std::filesystem::path& file);

}  // namespace heddle::kits
