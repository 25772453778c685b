// A training of a model through the engine: YAML, plugins, a mesh of threads, steps.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../training_run.h"
#include "heddle/parallel/build.h"
#include "heddle/plugin/registry.h"
#include "ranks.h"

namespace heddle::kits {

using Batches = std::function<std::vector<Batch>(int64_t step, int64_t rank, int64_t ranks)>;

// Returns whether this thread recomputes a unit under selective activation checkpointing.
bool is_recomputed();

// Records whether the plugin of a training had an effect: a link or a seam ran, or a parameter is placed
// along `axis`.
struct Acted {
  std::string axis;  // empty: the plugin has no axis
  std::atomic<bool> yes = false;
  // Whether a link or a seam ran again in the backward. Recorded for selective activation checkpointing.
  std::atomic<bool> again = false;
  void ran() {
    yes = true;
    if (is_recomputed()) again = true;
  }
};

struct Training {
  std::string distributed = "strategy: single";  // the section as YAML without braces
  int ranks = 1;
  std::function<Units()> make_units = {};
  Batches batches = {};                        // returns the microbatches of a data-parallel rank
  ParameterSource values = {};                 // empty: values of Init
  const OfferedParallelizer* alone = nullptr;  // acts although its axis has one rank
  bool split = false;    // all forwards, then split backwards; batches have several rows
  bool several = false;  // all forwards before the first backward
  ActivationCheckpointing checkpointing = ActivationCheckpointing::none;
  bool evaluates = false;               // evaluates after each step, which must not affect the result
  const CheckDevice* device = nullptr;  // the device of the training; null: the CPU
  int64_t steps = 3;
  std::shared_ptr<Acted> acted = nullptr;  // filled by train() unless null
};

// Throws NotRun if a plugin is missing, or if the engine or a plugin refuses the section or the model.
// Rethrows faults of a plugin.
void refuse_or_pass(PluginRegistry& plugins, const Training& training);

// Trains. The outcome includes the gradients of each step.
Outcome train(PluginRegistry& plugins, const Training& training);

// Runs both trainings, compares them and returns the difference.
std::string trains_equally(PluginRegistry& plugins, const Training& training, const Training& oracle);

}  // namespace heddle::kits
