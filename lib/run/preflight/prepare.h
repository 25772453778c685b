// From a recipe to a run that can start.
#pragma once

#include <chrono>
#include <filesystem>

#include "lib/run/preflight/preflight.h"
#include "lib/run/spec/run_spec.h"

namespace heddle {

// The files that the command line names.
struct NamedOutputs {
  std::filesystem::path metrics;  // empty: training.jsonl in checkpoint_dir
  std::filesystem::path trace;    // empty: none
  bool are_written_here = true;   // false: this process is not rank 0, so no output is checked
};

// The run on this machine that preflight() has checked, with the checkpoint that it resumes from. A run that
// still saves in checkpoint_dir is waited for as long as `patience`. Throws Error.
RunSpec spec_of(Preflight checked, const NamedOutputs& named,
                std::chrono::milliseconds patience = std::chrono::seconds(5));

// preflight() on this machine, spec_of(), and what a rank will hold. local_ranks: of the run, on this
// machine. Throws Error before any rank starts.
RunSpec prepare_run(Recipe recipe, PluginRegistry& plugins, int world_size, const NamedOutputs& named = {},
                    int local_ranks = 1);

}  // namespace heddle
