// Restarts of a run: their number, and the checkpoint that each resumes from.
#pragma once

#include <string>

#include "lib/run/spec/run_spec.h"

namespace heddle::cli {

// Whether the launcher's environment says that it has started this run before: torchrun after a lost worker,
// Slurm after a requeue.
bool was_started_before();

// Returns the recipe with checkpoint.restore_from set to the latest checkpoint that the run itself has saved.
// A restart must not resume from an older checkpoint that the recipe names, which may be gone, nor from one
// with more steps, which may belong to another run.
Recipe from_what_was_saved(Recipe recipe);

// Returns "restart 1 of 3: all ranks are started again and resume from checkpoints/epoch_0_step_9".
std::string restart_line(int restart, int most, const RunSpec& run);

}  // namespace heddle::cli
