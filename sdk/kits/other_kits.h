// The kits of schedules, devices and plans.
#pragma once

#include <filesystem>

#include "attempt.h"
#include "heddle/plugin/offer.h"

namespace heddle::kits {

// Tables of many sizes, and a model trained on each number of ranks.
void run_schedule_kits(const OfferedSchedule& offered, const std::filesystem::path& file,
                       const std::vector<int>& ranks, Attempts& attempt);
// Where the device is available.
void run_device_kits(const OfferedDevice& offered, Attempts& attempt);
void run_plan_kits(const OfferedPlan& offered, Attempts& attempt);

}  // namespace heddle::kits
