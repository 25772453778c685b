// The checker of a schedule: what is missing, repeated, misplaced, crossed or stuck, by rank, step and
// action.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "heddle/base/error.h"
#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

// The first fault of a table.
struct Fault {
  int rank = 0, step = 0;  // step: the place in the rank's row, from 0; the row's length for what is missing
  std::string action;      // "2F0"
  std::string text;        // the message, without rank and step
};

enum class Purpose { training, evaluation };  // evaluation: forwards alone

// Looks at a compute table or a lowered one (a table with any send or receive is lowered). rank_of_stage:
// [stage] -> rank. Transfers are treated as blocking on both sides, so a table that passes cannot hang on any
// communicator; each pair of ranks must see one order of its transfers.
HEDDLE_API std::optional<Fault> find_fault(const ScheduleTable& table, std::span<const int> rank_of_stage,
                                           int microbatches, Purpose purpose = Purpose::training);

// The rows of a table in text, with the action of the fault in brackets; "" for a table too large for a
// screen.
HEDDLE_API std::string faulty_rows(const ScheduleTable& table, const Fault& fault);

// Throws the fault as Error{code, where}: "rank 1, step 3: 1F2: ..."; its hint has the rows, for a plugin's.
HEDDLE_API void check(const ScheduleTable& table, std::span<const int> rank_of_stage, int microbatches,
                      const std::string& where, Purpose purpose = Purpose::training,
                      ErrorCode code = ErrorCode::input);

}  // namespace heddle::schedule
