// The checker's passes over several ranks: transfers pair and do not cross, and all ranks reach the end.
#pragma once

#include <optional>
#include <span>

#include "core/schedule/action_steps.h"
#include "core/schedule/check.h"

namespace heddle::schedule {

// A send without its receive, a receive without its send, or two ranks that see their transfers in different
// orders. `steps_of`: the steps of the table's actions.
std::optional<Fault> find_transfer_fault(const ScheduleTable& table, std::span<const int> rank_of_stage,
                                         const ActionSteps& steps_of);

// Runs the table, of compute actions or with transfers that block on both sides; finds ranks that wait in a
// cycle.
std::optional<Fault> find_deadlock(const ScheduleTable& table, std::span<const int> rank_of_stage,
                                   const ActionSteps& steps_of);

}  // namespace heddle::schedule
