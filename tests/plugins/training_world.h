// Trains a small model under any strategy and topology, on ranks that are threads, and gives back all
// numbers.
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
  std::vector<View> views = {};                                    // beside them
  AxisTable table = {};                                            // with the axes of the test's own
  std::vector<std::pair<std::string, std::string>> parallelizers;  // name and YAML of its fields
  std::vector<std::function<std::shared_ptr<IParallelizer>()>> own_parallelizers;  // act after those
  ModelConfig model;
  int microbatches = 1;  // batches a step; under a pipeline each is one call of the schedule
  int steps = 12;
  int64_t sequences = 12;                                             // a step, on all ranks together
  std::function<std::unique_ptr<IPipelineSchedule>()> make_schedule;  // empty: no pipeline
  PipelineConfig pipeline;
  std::vector<std::string> frozen;                            // names of parameters
  std::function<Units(int rank)> make_units;                  // empty: the model above
  ParameterSource values = {};                                // empty: from Init
  std::function<std::unique_ptr<IStrategy>()> make_strategy;  // empty: the one of that name
  std::function<void(Batch&, int slice)>
      change_batch;  // slice: the place of its sequences among all; may be empty
  ActivationCheckpointing checkpointing = ActivationCheckpointing::none;
  std::string order;  // for gradients(): two steps in this order (by_hand.h); empty: one step, one by one
  std::vector<std::vector<std::string>>* events = nullptr;      // every collective of every rank, in order
  double max_norm = 1.0;                                        // gradients are clipped to it
  std::function<std::unique_ptr<IOptimizer>()> make_optimizer;  // empty: AdamW
  OnDevice on_device;                                           // empty: the CPU
};

struct Outcome : kits::Outcome {
  std::vector<std::string> warnings;  // of the log, of all ranks
};

// Llama with sizes that divide by nothing.
ModelConfig odd_llama();

// A world of as many threads as the axes say. Every topology sees the same sequences.
Outcome train(const Training& run);

// Of the plugins of the build, by name.
std::unique_ptr<IStrategy> make_strategy(const std::string& name, const std::string& section);
std::unique_ptr<IParallelizer> make_parallelizer(const std::string& name, const std::string& section);

// This rank's stages of a training.
Stages build(const Training& run, const DeviceMesh& mesh);

// The stages of every rank, as threads; the collectives of Training::events are written down.
void on_ranks(const Training& run, const std::function<void(Stages&, const DeviceMesh&)>& body,
              const Log& log = Log());

// The gradients of the (last) step without an optimizer, whole; a parameter without one is missing.
std::map<std::string, at::Tensor> gradients(const Training& run);

// Losses agree to 2e-5, norms to 2e-4, parameters closely.
void expect_close(const Outcome& got, const Outcome& want);
void expect_bit_equal(const Outcome& got, const Outcome& want);

}  // namespace heddle::tests
