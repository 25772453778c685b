// `heddle plan`: reads the recipe and the machine file, searches layouts, and prints them.
#include "trainer/cli/run_commands.h"

#include <algorithm>
#include <fstream>
#include <iostream>

#include "heddle/base/error.h"
#include "heddle/base/log.h"
#include "lib/run/plan/plan_text.h"
#include "lib/run/recipe/recipe.h"
#include "trainer/cli/configuration.h"

namespace heddle::cli {
namespace {

MachineFile machine_of_command(const PlanCommand& command) {
  MachineFile machine =
      command.machine.empty() ? machine_named(command.device, "--device") : read_machine(command.machine);
  if (command.gpus_per_node > 0) machine.node_devices = command.gpus_per_node;
  if (command.nodes > 0) machine.node_devices = std::max(1, command.world_size / command.nodes);
  if (command.network > 0) machine.network_bandwidth = command.network;
  return machine;
}

std::vector<std::pair<std::string, std::string>> fixed_of(const PlanCommand& command) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const std::string& word : command.fixed) {
    const size_t sign = word.find('=');
    if (sign == word.npos || sign == 0 || sign + 1 == word.size())
      throw Error(ErrorCode::usage, "--fix", "'" + word + "' is not KEY=VALUE",
                  "for example: --fix tp_size=4");
    out.emplace_back(word.substr(0, sign), word.substr(sign + 1));
  }
  return out;
}

void write(const PlanCommand& command, const FoundLayouts& found, const Node& recipe) {
  std::ofstream file(command.write);
  file << comment_of(found, found.fitting.front()) << config::to_yaml(recipe);
  file.close();
  if (!file) throw Error(ErrorCode::io, command.write, "cannot be written", "use a writable path");
}

}  // namespace

int plan(const PlanCommand& command) {
  const Node recipe = read_configuration(command.config, command.overrides);
  PluginRegistry plugins = open_plugins(read_recipe(recipe, RecipeErrors::kept), Log::to_stderr(0));
  const PlanRequest request{recipe,           command.world_size, machine_of_command(command),
                            command.memory,   command.row_length, command.seconds,
                            fixed_of(command)};
  const FoundLayouts found = search_layouts(request, plugins);
  const auto top = static_cast<size_t>(command.top);
  std::cout << (command.json ? to_json(found, top) + "\n" : to_text(found, top));
  if (command.explain > 0) {
    const auto place = static_cast<size_t>(command.explain);
    if (place > found.fitting.size())
      throw Error(ErrorCode::usage, "--explain",
                  "there are " + std::to_string(found.fitting.size()) + " layouts",
                  "use the number of a row of the table");
    std::cout << "\n" << place << ". " << explained(found.fitting[place - 1]);
  }
  if (found.fitting.empty()) return 2;
  if (!command.write.empty())
    write(command, found, recipe_of(request, plugins, found.fitting.front().layout));
  return 0;
}

}  // namespace heddle::cli
