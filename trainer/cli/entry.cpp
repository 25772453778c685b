// Entry point of libheddle_trainer: one function that runs a parsed command.
#include "commands_stamp.h"
#include "heddle/base/export.h"
#include "lib/cost/processor.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/launch/messages.h"
#include "trainer/cli/launch/ranks.h"
#include "trainer/cli/run_commands.h"

namespace heddle::cli {
namespace {

struct CommandVisitor {
  int operator()(const TrainCommand& command) const { return train(command); }
  int operator()(const CheckCommand& command) const { return check(command); }
  int operator()(const PlanCommand& command) const { return plan(command); }
  int operator()(const PluginsCommand& command) const { return plugins(command); }
  int operator()(const DataCommand& command) const { return data(command); }
  int operator()(const GenerateCommand& command) const { return generate(command); }
  int operator()(const ConvertCommand& command) const { return convert(command); }
  int operator()(const ScheduleCommand& command) const { return schedule(command); }
  int operator()(const PrepareCommand& command) const { return prepare(command); }
  int operator()(const ShowCommand& command) const { return show_samples(command); }
  int operator()(const RefusedCommand& command) const {
    return run_or_tell_others(plan_ranks({}), [&]() -> int { throw command.error; });
  }
};

}  // namespace
}  // namespace heddle::cli

extern "C" {
extern HEDDLE_API const char heddle_commands_stamp[];
const char heddle_commands_stamp[] = HEDDLE_COMMANDS;
}

extern "C" HEDDLE_API int heddle_run_command(const heddle::cli::Command& command) {
  const heddle::launch::ExitGuard guard;
  heddle::check_kernel_settings();
  return std::visit(heddle::cli::CommandVisitor{}, command);
}
