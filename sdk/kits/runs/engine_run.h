// A training of a model through the engine's own flow: YAML, plugins that agree, a mesh of threads, steps.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../course.h"
#include "heddle/parallel/build.h"
#include "heddle/plugin/registry.h"
#include "ranks.h"

namespace heddle::kits {

using Batches = std::function<std::vector<Batch>(int64_t step, int64_t rank, int64_t ranks)>;

// Whether the plugin of a training did something in it: a link or a seam ran, or a parameter is placed along
// `axis`.
struct Acted {
  std::string axis;  // may be empty
  std::atomic<bool> yes = false;
};

struct Training {
  std::string distributed = "strategy: single";  // the section as YAML, without braces
  int ranks = 1;
  std::function<Units()> make_units = {};
  Batches batches = {};                        // the microbatches of a data-parallel rank
  ParameterSource values = {};                 // empty: from Init
  const OfferedParallelizer* alone = nullptr;  // acts too, although its axis has one rank
  bool split = false;    // all forwards, then split backwards; the batches hold several rows
  bool several = false;  // all forwards before the first backward
  ActivationCheckpointing checkpointing = ActivationCheckpointing::none;
  bool evaluates = false;               // after each step, which changes nothing
  const CheckDevice* device = nullptr;  // where it trains; null: the CPU
  int64_t steps = 3;
  std::shared_ptr<Acted> acted = nullptr;  // filled by train(); null: not asked
};

// Throws NotRun where a plugin is missing or the engine or a plugin refuses the section or the model; faults
// of a plugin pass.
void refuse_or_pass(PluginRegistry& plugins, const Training& training);

// Trains. The outcome also has the gradients of each step.
Outcome train(PluginRegistry& plugins, const Training& training);

// Both, compared; returns the difference.
std::string trains_equally(PluginRegistry& plugins, const Training& training, const Training& oracle);

}  // namespace heddle::kits
