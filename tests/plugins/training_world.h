// Trains a small model under any strategy and topology, on ranks that are threads, and returns all results.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heddle/engine/engine.h"
#include "lib/testing/training.h"
#include "tests/built_plugins.h"
#include "tests/llama_model.h"
#include "tests/strict_ranks.h"

namespace heddle::tests {

struct Training {
  std::string strategy = "single";
  std::string section = "{}";                                      // YAML of the strategy's fields
  std::vector<Axis> axes;                                          // with their sizes; empty: one rank
  std::vector<View> views = {};                                    // additional views
  AxisTable table = {};                                            // with the axes of the test
  std::vector<std::pair<std::string, std::string>> parallelizers;  // name and YAML of its fields
  std::vector<std::function<std::shared_ptr<IParallelizer>()>>
      own_parallelizers;  // after the parallelizers above
  ModelConfig model;
  int microbatches = 1;  // batches per step; in a pipeline each batch is one call of the schedule
  int steps = 12;
  int64_t sequences = 12;                                             // per step, over all ranks
  std::function<std::unique_ptr<IPipelineSchedule>()> make_schedule;  // empty: no pipeline
  PipelineConfig pipeline;
  std::vector<std::string> frozen;                            // names of parameters
  std::function<Units(int rank)> make_units;                  // empty: the model above
  ParameterSource values = {};                                // empty: from Init
  std::function<std::unique_ptr<IStrategy>()> make_strategy;  // empty: the strategy of that name
  std::function<void(Batch&, int slice)>
      change_batch;  // slice: the place of its sequences among all; may be empty
  ActivationCheckpointing checkpointing = ActivationCheckpointing::none;
  std::string order;  // for gradients(): two steps in this order (by_hand.h); empty: one step in sequence
  std::vector<std::vector<std::string>>* events = nullptr;      // every collective of every rank, in order
  double max_norm = 1.0;                                        // maximum gradient norm
  std::function<std::unique_ptr<IOptimizer>()> make_optimizer;  // empty: AdamW
  OnDevice on_device;                                           // empty: the CPU
};

struct Outcome : kits::Outcome {
  std::vector<std::string> warnings;  // warnings of all ranks
};

// Llama with sizes without common divisors.
ModelConfig odd_llama();

// Trains in a world of as many threads as the axes require. Every topology has the same sequences.
Outcome train(const Training& run);

// Creates a strategy of the build's plugins by name.
std::unique_ptr<IStrategy> make_strategy(const std::string& name, const std::string& section);
std::unique_ptr<IParallelizer> make_parallelizer(const std::string& name, const std::string& section);

// Builds this rank's stages of a training.
Stages build(const Training& run, const DeviceMesh& mesh);

// Runs body with the stages of every rank, on threads, and records the collectives in Training::events.
void on_ranks(const Training& run, const std::function<void(Stages&, const DeviceMesh&)>& body,
              const Log& log = Log());

// Returns whole gradients of the (last) step without an optimizer. Parameters without gradients are missing.
std::map<std::string, at::Tensor> gradients(const Training& run);

// Losses agree to 2e-5, norms to 2e-4, parameters closely.
void expect_close(const Outcome& got, const Outcome& want);
void expect_bit_equal(const Outcome& got, const Outcome& want);

}  // namespace heddle::tests
