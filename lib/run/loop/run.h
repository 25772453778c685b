// One rank of a run, from its model to its last step.
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

// Runs this rank of the run: trains, or times steps where the recipe is a benchmark. Rank 0 writes metrics
// and progress, every rank its part of checkpoints. Where any rank is asked to stop, all of them save after
// one step and return. Returns the signal that ended the run before its last step, the same on every rank; 0:
// all steps are done.
int run_rank(const RunSpec& run, PluginRegistry& plugins, Rendezvous& rendezvous, StopRequest& stop);

// This rank of a run whose recipe is BenchmarkingRecipeForNextTokenPrediction: max_steps steps as
// StepConfig::benchmark says. Rank 0 prints the times of each step and writes benchmark.json_output_path.
// Returns the signal that ended it before its last step, the same on every rank, or 0.
int run_benchmark(const RunSpec& run, PluginRegistry& plugins, Rendezvous& rendezvous, StopRequest& request);

// What every run does before its first step, whether it trains or is timed.

// The model of this rank. `whole` gets its sizes before the strategy takes it. The header of the run comes
// first, where its sizes are known: weights may take minutes, or more memory than there is. A collective.
engine::Model build_model(const RunSpec& run, PluginRegistry& plugins, Rendezvous& rendezvous,
                          WholeModel& whole);

BatchSplit split_of(const RunSpec& run, const DeviceMesh& mesh);

// What this step's batches say of it: a seed of random numbers where a module of the model draws.
StepOfBatch step_of(const RunSpec& run, const WholeModel& whole, const StepInfo& info);

// Refuses a token of the data that is not in the model's vocabulary. On one rank, which has the lock of
// checkpoint_dir where anything is saved.
void check_vocabulary(const RunSpec& run);

// The rest of the header, and the warnings, on rank 0.
void show_header(const RunSpec& run, const ModelSize& size, const engine::Model& model,
                 const ModelFlops& flops, int local_ranks);

// The plugin whose function this thread runs, and what it does, for a report of a crash; both are empty where
// it runs none. Safe in a handler of signals.
std::pair<std::string_view, std::string_view> running_plugin_call();

}  // namespace heddle
