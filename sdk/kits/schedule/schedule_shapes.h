// Checks a schedule for many sizes: each plan is checked, lowered and checked again.
#pragma once

#include <filesystem>
#include <string>

#include "heddle/schedule/schedule.h"

namespace heddle::kits {

// Tries 2,048 sizes, those with the fewest actions first, so that the first failure is the smallest one.
// Stops after 20 seconds for a slow schedule. The schedule may refuse sizes with its own Error, but not all
// of them. Returns a summary. Throws with the sizes, the fault and the table's rows.
std::string plans_tables(const IPipelineSchedule& made, const std::filesystem::path& file);

}  // namespace heddle::kits
