// The checker's passes over several ranks: transfers that pair and do not cross, and ranks that get to the
// end.
#pragma once

#include <optional>
#include <span>

#include "core/schedule/check.h"
#include "core/schedule/places.h"

namespace heddle::schedule {

// A send without its receive, a receive without its send, or two ranks that see their transfers in different
// orders. The table's actions stand where `places` says.
std::optional<Fault> find_transfer_fault(const ScheduleTable& table, std::span<const int> rank_of_stage,
                                         const Places& places);

// Runs the table, of compute actions or with transfers that block on both sides; ranks that wait in a ring.
std::optional<Fault> find_deadlock(const ScheduleTable& table, std::span<const int> rank_of_stage,
                                   const Places& places);

}  // namespace heddle::schedule
