// `heddle schedule`: plans and prints the table of a schedule, or compares all schedules.
#include "trainer/cli/run_commands.h"

#include <algorithm>

#include "heddle/plugin/registry.h"
#include "trainer/cli/schedule/schedule_compare.h"
#include "trainer/cli/schedule/schedule_output.h"

namespace heddle::cli {
namespace {

using std::to_string;

constexpr int64_t kMostCells = 1 << 22;  // maximum number of cells of a readable table

// Returns the number of stages of the whole pipeline: as given, else one per rank, or two if the schedule
// needs several.
int stages_of(const ScheduleCommand& command, StagesPerRank takes) {
  if (command.stages == 0) return command.ranks * std::min(takes.most, std::max(takes.least, 2));
  const std::string given = "--stages " + to_string(command.stages);
  if (command.stages % command.ranks != 0)
    throw Error(ErrorCode::usage, "heddle schedule",
                given + " is not a multiple of --ranks " + to_string(command.ranks),
                "set --stages to a multiple of --ranks; it counts the stages of the whole pipeline");
  const int each = command.stages / command.ranks;
  if (each >= takes.least && each <= takes.most) return command.stages;
  const std::string most = takes.most == takes.least  ? ""
                           : takes.most == kAnyNumber ? " or more"
                                                      : " to " + to_string(takes.most);
  throw Error(ErrorCode::usage, "heddle schedule",
              "the schedule '" + command.name + "' takes " + to_string(takes.least) + most +
                  (takes.most == 1 ? " stage per rank, but " : " stages per rank, but ") + given + " on " +
                  to_string(command.ranks) + " ranks are " + to_string(each));
}

void refuse_large(int stages, int microbatches) {
  if (int64_t{stages} * microbatches > kMostCells)
    throw Error(ErrorCode::usage, "heddle schedule",
                to_string(stages) + " stages and " + to_string(microbatches) +
                    " microbatches do not fit into a readable table",
                "use fewer stages or microbatches");
}

}  // namespace

int schedule(const ScheduleCommand& command) {
  refuse_outputs_of(command);
  PluginRegistry plugins(plugin::search_path({}), Log::to_stderr(0));
  if (command.compare) {
    refuse_large(2 * command.ranks, command.microbatches);
    return compare_schedules(command, plugins);
  }
  const OfferedSchedule* offered = plugins.schedule(command.name);
  if (offered == nullptr) throw plugins.missing("schedule", command.name);
  const std::unique_ptr<IPipelineSchedule> made = offered->make();
  const int stages = stages_of(command, made->stages_per_rank());
  refuse_large(stages, command.microbatches);
  const GivenTimes times = times_of(command);
  return print_schedule(
      {offered->name, plan_of(*made, command, times, stages),
       heddle::schedule::placement(*made, command.ranks, stages, offered->name), command.microbatches},
      command, measured_of(command, times, stages).stages);
}

}  // namespace heddle::cli
