// What every run does before its first step, whether it trains or is timed.
#pragma once

#include <optional>

#include "heddle/engine/engine.h"
#include "lib/cost/model_size.h"
#include "lib/data/batches.h"
#include "lib/run/metrics/mfu.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

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

}  // namespace heddle
