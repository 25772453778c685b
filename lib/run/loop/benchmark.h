// A benchmark: steps that are timed, and nothing else.
#pragma once

#include "lib/run/loop/run.h"

namespace heddle {

// This rank of a run whose recipe is BenchmarkingRecipeForNextTokenPrediction: max_steps steps as
// StepConfig::benchmark says. Rank 0 prints the times of each step and writes benchmark.json_output_path.
// Returns the signal that ended it before its last step, the same on every rank, or 0.
int run_benchmark(const RunSpec& run, PluginRegistry& plugins, Rendezvous& rendezvous, StopRequest& request);

}  // namespace heddle
