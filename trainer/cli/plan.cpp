// `heddle plan`: reads the recipe and the machine file, searches layouts, and prints them.
#include "trainer/cli/run_commands.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include "heddle/base/error.h"
#include "heddle/base/log.h"
#include "heddle/base/text.h"
#include "heddle/engine/engine.h"
#include "lib/cost/measure.h"
#include "lib/cost/time/step_picture.h"
#include "lib/data/outputs.h"
#include "lib/drawing/chrome_trace.h"
#include "lib/run/plan/plan_text.h"
#include "lib/run/recipe/recipe.h"
#include "trainer/cli/configuration.h"
#include "trainer/cli/launch/ranks.h"

namespace heddle::cli {
namespace {

// Parts of the first lines of the files that this command writes.
constexpr const char* kPictureLine = "aria-label=\"a predicted step\"";
constexpr const char* kRecipeLine = "as heddle plan predicts";
constexpr const char* kMachineLine = "Measured by heddle plan --measure";

MachineFile with_network(MachineFile machine, const PlanCommand& command) {
  if (command.nodes > 0 && command.world_size % command.nodes != 0)
    throw Error(ErrorCode::usage, "--nodes",
                std::to_string(command.nodes) + " nodes do not divide " + std::to_string(command.world_size) +
                    " ranks",
                "give a divisor of --world-size");
  if (command.gpus_per_node > 0 && command.world_size > command.gpus_per_node &&
      command.world_size % command.gpus_per_node != 0)
    throw Error(ErrorCode::usage, "--gpus-per-node",
                std::to_string(command.world_size) + " ranks do not fill nodes of " +
                    std::to_string(command.gpus_per_node) + " devices",
                "give a divisor of --world-size");
  if (command.gpus_per_node > 0) machine.node_devices = command.gpus_per_node;
  if (command.nodes > 0) machine.node_devices = std::max(1, command.world_size / command.nodes);
  if (command.network > 0) machine.network_bandwidth = command.network;
  return machine;
}

// Reads --machine, "a.yaml" or "a.yaml:8,b.yaml:8" with the ranks on each machine, or --device.
Machines machines_of(const PlanCommand& command) {
  if (command.machine.empty())
    return Machines{MachinePart{with_network(machine_named(command.device, "--device"), command)}};
  constexpr const char* kHint = "write the number of ranks after each file, such as a.yaml:8,b.yaml:8";
  Machines out;
  int64_t ranks = 0;
  std::istringstream words(command.machine);
  for (std::string word; std::getline(words, word, ',');) {
    const size_t colon = word.rfind(':');
    const std::string count = colon == word.npos ? "" : word.substr(colon + 1);
    const bool is_counted =
        !count.empty() && count.size() < 10 && count.find_first_not_of("0123456789") == count.npos;
    const std::string file = is_counted ? word.substr(0, colon) : word;
    if (file.empty())
      throw Error(ErrorCode::usage, "--machine", "'" + command.machine + "' has an empty file name", kHint);
    out.push_back({with_network(read_machine(file), command), is_counted ? std::stoll(count) : 0});
    ranks += out.back().ranks;
  }
  const auto is_empty = [](const MachinePart& part) { return part.ranks == 0; };
  const bool is_alone = out.size() == 1 && is_empty(out.front());
  if (!is_alone && std::any_of(out.begin(), out.end(), is_empty))
    throw Error(ErrorCode::usage, "--machine", "'" + command.machine + "' has a machine without ranks",
                kHint);
  if (!is_alone && ranks != command.world_size)
    throw Error(ErrorCode::usage, "--machine",
                "'" + command.machine + "' has " + std::to_string(ranks) + " ranks, but --world-size is " +
                    std::to_string(command.world_size),
                kHint);
  return out;
}

std::vector<std::pair<std::string, std::string>> fixed_of(const PlanCommand& command) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const std::string& word : command.fixed) {
    const size_t sign = word.find('=');
    if (sign == word.npos || sign == 0 || sign + 1 == word.size())
      throw Error(ErrorCode::usage, "--fix", "'" + word + "' is not KEY=VALUE",
                  "for example: --fix tp_size=4");
    const std::string key = word.substr(0, sign), value = word.substr(sign + 1);
    for (const auto& [other, earlier] : out)
      if (other == key)
        throw Error(ErrorCode::usage, "--fix", "'" + key + "' is given twice", "remove one of them");
    const bool is_none =
        key == "activation_checkpointing" && text::lower(value) == "false";  // as recipes have it
    out.emplace_back(key, is_none ? "none" : value);
  }
  return out;
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) throw Error(ErrorCode::io, path, "cannot be written", "use a writable path");
}

// Whether the first line of a file contains this text.
std::function<bool(const std::filesystem::path&)> begins_with_line_of(const std::string& text) {
  return [text](const std::filesystem::path& path) {
    std::ifstream file(path);
    std::string line;
    return std::getline(file, line) && line.find(text) != line.npos;
  };
}

// Refuses output files before a search that takes long: other files are not replaced.
void check_outputs(const PlanCommand& command) {
  std::vector<Output> outputs;
  const auto add = [&](const std::string& path, const char* option, const char* kind,
                       const char* first_line) {
    if (!path.empty()) outputs.push_back({path, option, kind, begins_with_line_of(first_line)});
  };
  add(command.picture, "--picture", "picture of a step", kPictureLine);
  add(command.write, "--write", "recipe of heddle plan", kRecipeLine);
  add(command.measure, "--measure", "machine file of heddle plan", kMachineLine);
  if (!command.trace.empty())
    outputs.push_back({command.trace, "--trace", "trace of heddle", schedule::is_chrome_file});
  std::vector<Input> inputs;
  if (!command.config.empty()) inputs.push_back({command.config, "the configuration"});
  refuse_outputs(outputs, inputs);
}

// Returns the row that the command asks for, with its details.
Explained explained_row(const PlanCommand& command, const PlanRequest& request, PluginRegistry& plugins,
                        const FoundLayouts& found) {
  const size_t row = command.explain > 0 ? static_cast<size_t>(command.explain) : 1;
  if (row > found.fitting.size())
    throw Error(ErrorCode::usage, "--explain",
                "there are " + std::to_string(found.fitting.size()) + " layouts",
                "use the number of a row of the table");
  return {row, details_of(request, plugins, found.fitting[row - 1].layout)};
}

void write_files(const PlanCommand& command, const FoundLayouts& found, const Explained& one) {
  const PlannedLayout& planned = found.fitting[one.row - 1];
  const std::string title = title_of(found, planned.layout);
  if (!command.picture.empty()) write(command.picture, step_svg(one.details.cost, title));
  if (!command.trace.empty()) write(command.trace, step_trace(one.details.cost, title));
  if (command.write.empty()) return;
  if (found.recipe_row_length > 0 && found.recipe_row_length != found.row_length)
    throw Error(ErrorCode::usage, "--write",
                "the recipe's rows have " + std::to_string(found.recipe_row_length) +
                    " tokens, and the plan's " + std::to_string(found.row_length),
                "remove --row-length, or change the length of the rows in the recipe");
  write(command.write, recipe_text(found, planned));
}

// Measures this machine on all ranks at once, each on its own device.
int measure(const PlanCommand& command) {
  const RankPlan ranks = plan_ranks(command.world_size);
  return run_or_tell_others(ranks, [&] {
    const Node nothing = Node::map({});
    PluginRegistry plugins = open_plugins(nothing, Log::to_stderr(ranks.rank()));
    const Setup setup = engine::validate(nothing, plugins, ranks.world_size());
    return run_ranks(ranks, std::chrono::minutes(1), [&](Rendezvous& rendezvous) {
      const std::unique_ptr<IDevice> device = engine::choose_device(setup, plugins);
      if (device != nullptr) device->start(rendezvous.local_rank());
      const std::unique_ptr<Rendezvous> own = device == nullptr ? nullptr : device->wrap(rendezvous);
      const MachineFile machine = measure_machine(own == nullptr ? rendezvous : *own, device.get());
      if (rendezvous.rank() != 0) return 0;
      write(command.measure,
            to_yaml(machine, std::string(kMachineLine) + " with " + std::to_string(ranks.world_size()) +
                                 " ranks on one machine at the same time"));
      std::cout << command.measure << ": figures of one of " << ranks.world_size() << " ranks on "
                << machine.device << "\n";
      return 0;
    });
  });
}

}  // namespace

int plan(const PlanCommand& command) {
  check_outputs(command);
  if (!command.measure.empty()) return measure(command);
  if (command.config.empty())
    throw Error(ErrorCode::usage, "heddle plan", "CONFIG is required without --measure",
                "add the YAML file of a run");
  const Node recipe = read_configuration(command.config, command.overrides);
  PluginRegistry plugins = open_plugins(read_recipe(recipe, RecipeErrors::kept), Log::to_stderr(0));
  const PlanRequest request{
      recipe,          command.world_size, machines_of(command), command.memory, command.row_length,
      command.seconds, fixed_of(command),  command.allowed};
  const FoundLayouts found = search_layouts(request, plugins);
  const auto top = static_cast<size_t>(command.top);
  const bool has_details = !found.fitting.empty() && (command.explain > 0 || !command.picture.empty() ||
                                                      !command.trace.empty() || !command.write.empty());
  if (!command.json) std::cout << to_text(found, top) << std::flush;
  std::optional<Explained> one;
  if (has_details) one = explained_row(command, request, plugins, found);
  const Explained* const explained = one && command.explain > 0 ? &*one : nullptr;
  if (command.json)
    std::cout << to_json(found, top, explained);
  else if (explained != nullptr)
    std::cout << "\n" << to_text(found, *explained);
  if (found.fitting.empty()) throw no_fitting_layout(found);
  if (one) write_files(command, found, *one);
  return 0;
}

}  // namespace heddle::cli
