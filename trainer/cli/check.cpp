// `heddle check`: validates configurations for numbers of ranks as `heddle train` does, and prints the
// resolved runs.
#include "trainer/cli/run_commands.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <map>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/engine/engine.h"
#include "lib/cost/model_size.h"
#include "lib/cost/step_cost.h"
#include "lib/run/facts/run_facts.h"
#include "lib/run/preflight/preflight.h"
#include "trainer/cli/configuration.h"

namespace heddle::cli {
namespace {

std::vector<int> world_sizes(const CheckCommand& command) {
  if (!command.world_sizes.empty()) return command.world_sizes;
  const char* text = std::getenv("WORLD_SIZE");
  if (text == nullptr || *text == '\0') return {1};
  char* end = nullptr;
  const long size = std::strtol(text, &end, 10);
  if (*end != '\0' || size < 1 || size > 1 << 30)
    throw Error(ErrorCode::usage, "WORLD_SIZE", "expected a number of ranks, got '" + std::string(text) + "'",
                "give --world-size N");
  return {static_cast<int>(size)};
}

// Whether the file has a section of a recipe; otherwise only the engine's sections are checked. An empty file
// is a run without a model.
bool is_run(const Node& whole) {
  if (whole.entries().empty()) return true;
  for (const auto& [key, value] : whole.entries())
    if (key != "distributed" && key != "dist_env" && key != "plugins") return true;
  return false;
}

void check_override(const Override& override_, const CheckCommand& command) {
  const std::string section = override_.key.substr(0, override_.key.find('.'));
  if (!command.only_distributed) return;
  if (std::find(kEngineSections.begin(), kEngineSections.end(), section) != kEngineSections.end()) return;
  throw Error(ErrorCode::usage, "--" + override_.key,
              "with --only distributed, only distributed and dist_env are read",
              "remove --only distributed to check the whole recipe");
}

// A configuration resolved for a number of ranks.
struct Verdict {
  Setup setup;
  bool is_run = false;
  std::optional<ModelSize> size = std::nullopt;       // per rank; empty: unknown
  std::optional<StepScheduler> steps = std::nullopt;  // empty: unknown
  std::vector<SkippedKey> skipped = {};               // sections and keys without effect
  std::optional<StepCost> cost = std::nullopt;        // set if --cost is given
};

// Computes the cost of a step for --cost.
struct Costing {
  PluginRegistry& plugins;
  const CheckCommand& command;
  // Returns the cost for a run whose model may be unknown.
  std::optional<StepCost> of(const Preflight& checked, const Setup& setup) const {
    if (command.cost.empty()) return std::nullopt;
    const PreparedModel* const model = checked.model ? &*checked.model : nullptr;
    const int64_t length = command.row_length > 0 ? command.row_length : row_length_of(checked);
    if (model != nullptr) check_row_length(*model, length);
    if (model != nullptr && length > 0)
      return step_cost(step_plan(setup, *model, checked.recipe, checked.pipeline), plugins, length,
                       Machines{MachinePart{machine_named(command.cost, "--cost")}});
    throw Error(ErrorCode::usage, "--cost",
                std::string("the ") + (model != nullptr ? "length of the data's rows" : "model") +
                    " is unknown, because it is not on this machine",
                model != nullptr ? "give --row-length, or prepare the data with heddle prepare"
                                 : "use a model on this machine, or set its keys in model.config");
  }
};

Verdict run_elsewhere(Preflight checked, const Costing& costing) {
  Verdict out{std::move(checked.setup), true, std::nullopt, checked.scheduler, checked.recipe.skipped};
  if (checked.model)
    if (const auto sizes =
            sizes_if_known(step_plan(out.setup, *checked.model, checked.recipe, checked.pipeline),
                           costing.plugins, out.setup.warnings))
      out.size = sizes->most;
  out.cost = costing.of(checked, out.setup);
  return out;
}

// Checks the memory of one rank as `heddle train` does; the number of ranks on this machine is unknown.
void see_memory(const RankSizes& sizes, const ModelSection& model, Setup& setup) {
  if (!model.check_memory) return;
  check_memory(sizes, model.where, 1);
  if (setup.sizes.world == 1) return;
  try {
    check_memory(sizes, model.where, setup.sizes.world);
  } catch (const Error& error) {
    setup.warnings.push_back(error.message());
  }
}

// Runs the steps of `heddle train` before its ranks start, and throws their errors.
Verdict run_here(Preflight checked, PluginRegistry& plugins) {
  const bool on_cpu = checked.plan.device == nullptr;
  RunOptions options;
  options.patience = std::chrono::milliseconds(0);
  const RunSpec run = spec_of(std::move(checked), options);
  Verdict out{run.setup, true, std::nullopt, run.scheduler, run.recipe.skipped};
  const auto sizes =
      sizes_if_known(step_plan(run.setup, run.model, run.recipe, run.pipeline), plugins, out.setup.warnings);
  if (!sizes) return out;
  if (on_cpu) see_memory(*sizes, run.recipe.model, out.setup);
  out.size = sizes->most;
  return out;
}

// A configuration with its plugins, or the error of reading it.
struct Loaded {
  Recipe recipe;  // whole recipe of a run, or only its configuration
  bool is_run = false;
  std::shared_ptr<PluginRegistry> plugins;
  std::exception_ptr error;
};

std::string run_json(const Verdict& verdict) {
  const auto number = [&](auto of) {
    return verdict.size ? std::to_string(of(*verdict.size)) : std::string("null");
  };
  const auto active = [](const ModelSize& size) { return size.parameters - size.experts.inactive; };
  const std::string steps = verdict.steps ? std::to_string(verdict.steps->total_steps()) : "null";
  return "\"parameters\": " + number(std::mem_fn(&ModelSize::parameters)) +
         ", \"active_parameters\": " + number(active) +
         ", \"experts\": " + number([](const ModelSize& size) { return size.experts.experts; }) +
         ", \"experts_per_rank\": " + number([](const ModelSize& size) { return size.experts.held; }) +
         ", \"bytes_per_rank\": {\"parameters\": " + number(std::mem_fn(&ModelSize::held)) +
         ", \"gradients\": " + number(std::mem_fn(&ModelSize::gradients)) +
         ", \"optimizer\": " + number(std::mem_fn(&ModelSize::optimizer)) + "}, \"steps\": " + steps;
}

std::string to_json(const std::vector<SkippedKey>& skipped) {
  std::string out;
  for (const SkippedKey& one : skipped)
    out += (out.empty() ? "" : ", ") + text::quoted(one.key) + ": " + text::quoted(one.why);
  return "{" + out + "}";
}

std::string run_text(const Verdict& verdict) {
  if (!verdict.is_run) return "";
  std::string out;
  if (const auto& size = verdict.size) {
    out += "parameters: " + count_text(size->parameters) + "\n";
    if (size->experts.layers > 0) out += "experts: " + experts_text(*size) + "\n";
    out += "memory per rank: parameters " + bytes_text(size->held) + ", gradients " +
           bytes_text(size->gradients) + ", optimizer " + bytes_text(size->optimizer) +
           ", plus activations\n";
  }
  if (const auto& steps = verdict.steps)
    out += "steps: " + std::to_string(steps->total_steps()) + ", " +
           std::to_string(steps->steps_per_epoch()) + " per epoch\n";
  return out;
}

class Checker {
 public:
  explicit Checker(const CheckCommand& command) : command_(command) {}

  int run() {
    const std::vector<int> sizes = world_sizes(command_);
    for (const Override& one : command_.overrides) check_override(one, command_);
    for (const std::string& file : command_.configs) {
      const Loaded loaded = load(file);
      for (const int size : sizes) check(file, size, loaded);
    }
    std::cout.flush();
    if (!std::cout) throw Error(ErrorCode::io, "standard output", "cannot be written");
    return status_;
  }

 private:
  Loaded load(const std::string& file) {
    Loaded out;
    try {
      Node whole = command_.only_distributed ? config::read_only(file, kEngineSections) : config::read(file);
      whole = with_overrides(std::move(whole), command_.overrides);
      out.is_run = !command_.only_distributed && is_run(whole);
      if (out.is_run)
        out.recipe = read_recipe(whole, RecipeErrors::kept);
      else
        out.recipe.configuration = std::move(whole);
      out.plugins = plugins_of(out.recipe);
    } catch (const Error&) {
      out.error = std::current_exception();
    }
    return out;
  }

  // Files that name no plugins share one registry, so that each plugin is loaded once.
  std::shared_ptr<PluginRegistry> plugins_of(const Recipe& recipe) {
    const Log log = Log::to_stderr(0);
    if (const Node* own = recipe.configuration.find("plugins"); own != nullptr && !own->is_null())
      return std::make_shared<PluginRegistry>(open_plugins(recipe, log));
    if (shared_ == nullptr) shared_ = std::make_shared<PluginRegistry>(open_plugins(Node::map({}), log));
    return shared_;
  }

  void check(const std::string& file, int size, const Loaded& loaded) {
    try {
      if (loaded.error) std::rethrow_exception(loaded.error);
      print(file, verdict(loaded, size));
    } catch (const Error& error) {
      status_ = 2;
      refuse(file, size, error);
    }
  }

  Verdict verdict(const Loaded& loaded, int size) const {
    if (!loaded.is_run) {
      if (!command_.cost.empty())
        throw Error(ErrorCode::usage, "--cost", "a file without a model has no step to cost",
                    "use the whole recipe, without --only");
      using engine::IdleBlocks;
      const IdleBlocks idle = command_.only_distributed ? IdleBlocks::dropped : IdleBlocks::checked;
      return {engine::validate(loaded.recipe.configuration, *loaded.plugins, size, idle)};
    }
    // the device may be on another machine
    const bool elsewhere = command_.elsewhere || !command_.cost.empty();
    PreparationOptions found;
    found.make = false;
    Preflight checked = preflight(loaded.recipe, *loaded.plugins, size,
                                  elsewhere ? Machine::another : Machine::this_one, found);
    return elsewhere || !checked.dataset
               ? run_elsewhere(std::move(checked), Costing{*loaded.plugins, command_})
               : run_here(std::move(checked), *loaded.plugins);
  }

  void print(const std::string& file, const Verdict& verdict) const {
    if (command_.json) {
      std::string line = engine::to_json(verdict.setup);
      if (verdict.is_run)
        line.replace(line.size() - 1, 1,
                     ", " + run_json(verdict) + ", \"skipped\": " + to_json(verdict.skipped) +
                         (verdict.cost ? ", \"cost\": " + to_json(*verdict.cost) : "") + "}");
      std::cout << "{\"config\": " << text::quoted(file) << ", " << line.substr(1) << "\n";
      return;
    }
    const int ranks = verdict.setup.sizes.world;
    std::cout << file << " on " << ranks << (ranks == 1 ? " rank\n" : " ranks\n")
              << engine::to_text(verdict.setup) << run_text(verdict)
              << (verdict.cost ? to_text(*verdict.cost) : "") << text_of(verdict.skipped, command_.verbose)
              << std::endl;
    for (const std::string& warning : verdict.setup.warnings)
      std::cerr << "warning: " << warning << std::endl;
  }

  void refuse(const std::string& file, int size, const Error& error) const {
    if (command_.json)
      std::cout << "{\"config\": " << text::quoted(file) << ", \"world_size\": " << size << ", "
                << to_json(error).substr(1) << "\n";
    else
      std::cout << file << " on " << size << (size == 1 ? " rank: refused\n\n" : " ranks: refused\n\n");
    std::cout.flush();
    std::cerr << error.what() << std::endl;
  }

  const CheckCommand& command_;
  std::shared_ptr<PluginRegistry> shared_;
  int status_ = 0;
};

}  // namespace

int check(const CheckCommand& command) {
  return Checker(command).run();
}

}  // namespace heddle::cli
