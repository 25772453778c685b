// The checker's passes over several ranks: transfers that pair and do not cross, and ranks that get to the
// end.
#pragma once

#include <optional>
#include <span>

#include "core/schedule/action_steps.h"
#include "core/schedule/check.h"

namespace heddle::schedule {

// A send without its receive, a receive without its send, or two ranks that see their transfers in different
// orders. The table's actions stand where `steps_of` says.
std::optional<Fault> find_transfer_fault(const ScheduleTable& table, std::span<const int> rank_of_stage,
                                         const ActionSteps& steps_of);

// Runs the table, of compute actions or with transfers that block on both sides; ranks that wait in a ring.
std::optional<Fault> find_deadlock(const ScheduleTable& table, std::span<const int> rank_of_stage,
                                   const ActionSteps& steps_of);

}  // namespace heddle::schedule
