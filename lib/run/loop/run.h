// One rank of a run, from building its model to its last step.
#pragma once

#include <string_view>
#include <utility>

#include "heddle/engine/engine.h"
#include "lib/cost/mfu.h"
#include "lib/cost/model_size.h"
#include "lib/data/batches.h"
#include "lib/run/spec/run_spec.h"
#include "lib/run/spec/stop_request.h"

namespace heddle {

// Runs this rank: trains, or times steps if the recipe is a benchmark. Rank 0 writes metrics and progress,
// and every rank its part of checkpoints. If any rank is asked to stop, all ranks save after the same step
// and return. Returns the signal that stopped the run before its last step, equal on all ranks; 0: all steps
// are done.
int run_rank(const RunSpec& run, PluginRegistry& plugins, Rendezvous& rendezvous, StopRequest& stop);

// Runs this rank of a recipe BenchmarkingRecipeForNextTokenPrediction: max_steps steps as
// StepConfig::benchmark says. Rank 0 prints the times of each step and writes benchmark.json_output_path.
// Returns the signal that stopped the run before its last step, equal on all ranks, or 0.
int run_benchmark(const RunSpec& run, PluginRegistry& plugins, Rendezvous& rendezvous, StopRequest& request);

// Shared by training runs and benchmarks before the first step.

// Builds the model of this rank. `whole` gets the model's sizes before the strategy takes the model. Prints
// the header of the run first, once sizes are known: loading weights may take minutes or exceed the memory. A
// collective.
engine::Model build_model(const RunSpec& run, PluginRegistry& plugins, Rendezvous& rendezvous,
                          WholeModel& whole);

BatchSplit split_of(const RunSpec& run, const DeviceMesh& mesh);

// Returns the values that the batches of a step carry: a random seed if a module of the model uses random
// numbers.
StepOfBatch step_of(const RunSpec& run, const WholeModel& whole, const StepInfo& info);

// Throws if the data has a token outside the model's vocabulary. Called on one rank, which holds the lock of
// checkpoint_dir if the run saves.
void check_vocabulary(const RunSpec& run);

// Prints the rest of the header and the warnings on rank 0.
void show_header(const RunSpec& run, const ModelSize& size, const engine::Model& model,
                 const ModelFlops& flops, int local_ranks);

// Returns the plugin whose function this thread runs and the operation, for a crash report; both are empty
// outside of plugins. Async-signal-safe.
std::pair<std::string_view, std::string_view> running_plugin_call();

}  // namespace heddle
