// The kits of schedules, devices and plans.
#pragma once

#include <filesystem>

#include "attempt.h"
#include "heddle/plugin/offer.h"

namespace heddle::kits {

// Checks tables of many sizes, and trains a model on each number of ranks.
void run_schedule_kits(const OfferedSchedule& offered, const std::filesystem::path& file,
                       const std::vector<int>& ranks, Attempts& attempt);
// Checks a device if it is available.
void run_device_kits(const OfferedDevice& offered, Attempts& attempt);
void run_plan_kits(const OfferedPlan& offered, Attempts& attempt);

}  // namespace heddle::kits
