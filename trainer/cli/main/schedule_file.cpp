// Checks and prints a schedule table from a file.
#include "trainer/cli/main/schedule_file.h"

#include "heddle/schedule/schedule.h"
#include "trainer/cli/schedule/schedule_output.h"

namespace heddle::cli {

int show_schedule_file(const ScheduleCommand& command) {
  refuse_outputs_of(command);
  const schedule::TableFile file = schedule::read_table(command.csv, command.csv);
  const std::vector<schedule::Costs> costs(file.rank_of_stage.size());
  return print_schedule({file.path, file.table, file.rank_of_stage, file.microbatches}, command, costs);
}

}  // namespace heddle::cli
