// Output of `heddle schedule`, for a schedule by name or from a file.
#pragma once

#include <array>
#include <fstream>
#include <iostream>
#include <span>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/schedule/schedule.h"
#include "heddle/schedule/simulate.h"
#include "lib/data/outputs.h"
#include "lib/drawing/chrome_trace.h"
#include "lib/drawing/drawing.h"
#include "trainer/cli/commands.h"

namespace heddle::cli {

// Checks the files to read and write before the schedule is planned.
inline void refuse_outputs_of(const ScheduleCommand& command) {
  if (command.trace.empty()) return;
  std::vector<Input> inputs;
  if (!command.csv.empty()) inputs.push_back({command.csv, "the table of --csv"});
  if (!command.times_from.empty()) inputs.push_back({command.times_from, "the trace of --times-from"});
  const std::array outputs = {Output{command.trace, "--trace", "trace of heddle", schedule::is_chrome_file}};
  refuse_outputs(outputs, inputs);
}

// Prints the table in the requested format on standard output, and the warning about the bubble on standard
// error. costs: per stage, for a trace.
inline int print_schedule(schedule::Drawing drawing, const ScheduleCommand& command,
                          std::span<const schedule::Costs> costs) {
  const std::string warning =
      schedule::bubble_warning(drawing.microbatches, static_cast<int>(drawing.rank_of_stage.size()));
  if (!warning.empty()) std::cerr << "warning: " << warning << std::endl;
  if (command.lowered && !schedule::is_lowered(drawing.table))
    drawing.table = schedule::lower(drawing.table, drawing.rank_of_stage);
  if (!command.trace.empty() && !(std::ofstream(command.trace, std::ios::binary)
                                  << schedule::to_chrome_trace(drawing, costs) << std::flush))
    throw Error(ErrorCode::io, "--trace", "the file " + command.trace + " cannot be written",
                "its directory must exist and be writable");
  switch (command.format) {
    case ScheduleCommand::Format::table:
      std::cout << schedule::to_table(drawing);
      break;
    case ScheduleCommand::Format::csv:
      std::cout << schedule::to_csv(drawing.table, drawing.rank_of_stage);
      break;
    case ScheduleCommand::Format::json:
      std::cout << schedule::to_json(drawing);
      break;
    case ScheduleCommand::Format::svg:
      std::cout << schedule::to_svg(drawing);
      break;
  }
  return 0;
}

}  // namespace heddle::cli
