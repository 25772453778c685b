// A schedule's table in a file, in the CSV form of PyTorch's pipeline schedules.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/schedule/check.h"
#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

// One row per rank, one cell per action.
struct TableFile {
  std::string path;
  ScheduleTable table;             // compute actions alone, or lowered
  std::vector<int> rank_of_stage;  // by the first row that has the stage
  int microbatches = 0;
};

// Whether a table holds more than computations: transfers, UNSHARD, RESHARD or REDUCE_GRAD.
HEDDLE_API bool is_lowered(const ScheduleTable& table);

// Reads and checks a file. Throws Error{input} at "FILE:LINE cell N", naming rank, step and action.
// where: what named the file, for the error of a missing one.
HEDDLE_API TableFile read_table(const std::string& path, const std::string& where);

// The same from a text; path: for the errors.
HEDDLE_API TableFile parse_table(const std::string& text, const std::string& path);

// The table as a schedule that plans exactly this: its ranks, stages and microbatches. A lowered table is
// refused with Error{input}: core adds the transfers.
HEDDLE_API std::unique_ptr<IPipelineSchedule> make_from_table(TableFile file);

// Rows as read_table reads them. A compute table is laid out in time, every action one cell wide, with an
// empty cell where a rank waits; a lowered one is a list.
HEDDLE_API std::string to_csv(const ScheduleTable& table, std::span<const int> rank_of_stage);

// The cells of those rows: [rank][time], "" where a rank waits.
HEDDLE_API std::vector<std::vector<std::string>> cells_of(const ScheduleTable& table,
                                                          std::span<const int> rank_of_stage);

}  // namespace heddle::schedule
