// A run as one process sees it before any rank starts: `heddle train` and `heddle check` go the same way.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "trainer/loop/job.h"

namespace heddle {

// Where the run will be: for another machine, a model, data or a device that this one lacks is a warning.
enum class Machine { this_one, another };

// What is known of a run. Empty is what another machine has; never so on this one.
struct Look {
  Recipe recipe;
  Setup setup;
  Plan plan;
  std::optional<JobPipeline> pipeline;
  std::optional<JobModel> model;
  std::optional<TokenDataset> dataset;
  std::vector<ValidationSet> validation;
  std::optional<StepScheduler> scheduler;  // empty where the number of samples is not known
  std::optional<LrSchedule> rates;
};

// Reads and checks the whole configuration, refuses what is not built by its name, and opens the model's and
// the data's files. Throws Error.
Look look_at(const Node& configuration, PluginRegistry& plugins, int world_size, Machine machine);

// The job of a run on this machine, with the checkpoint that it goes on from. A run that still saves in
// checkpoint_dir is waited for as long as `patience`. Throws Error.
Job begin(const Node& configuration, Look look, const NamedOutputs& named,
          std::chrono::milliseconds patience = std::chrono::seconds(5));

}  // namespace heddle
