// What is known of a run before any rank starts, found in the same way for `heddle train` and `heddle check`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/run/spec/run_spec.h"

namespace heddle {

// Where the run will be: for another machine, a model, data or a device that this one lacks is a
// warning.
enum class Machine { this_one, another };

// What is known of a run. Empty is what another machine has; on this one only data that are not prepared and
// are not to be.
struct Preflight {
  Recipe recipe;
  Setup setup;
  Plan plan;
  std::optional<RunPipeline> pipeline;
  std::optional<PreparedModel> model;
  std::optional<Rows> dataset;
  std::vector<ValidationSet> validation;
  std::optional<StepScheduler> scheduler;  // empty where the number of samples is not known
  std::optional<LrSchedule> rates;
  SavedBytes saved;                         // of one checkpoint
  std::filesystem::path samples_tokenizer;  // as in a RunSpec
};

// Checks the recipe against the world and the plugins, refuses what is not built by its name, and opens the
// files of the model and of the data. Throws Error, with those that the recipe has kept.
Preflight preflight(Recipe recipe, PluginRegistry& plugins, int world_size, Machine machine);

}  // namespace heddle
