// Restarts of a run: how often, and from which checkpoint.
#pragma once

#include <string>

#include "lib/run/spec/run_spec.h"

namespace heddle::cli {

// Whether a launcher says that it has started this run before: torchrun after a lost worker, Slurm after a
// requeue.
bool was_started_before();

// A run that is started again resumes from what it has saved itself, also where its recipe names an older
// checkpoint to begin with, which may be gone by then: the recipe with the name of the latest in
// checkpoint.restore_from, as checkpoints of more steps may be of another run.
Recipe from_what_was_saved(Recipe recipe);

// "restart 1 of 3: all ranks are started again and resume from checkpoints/epoch_0_step_9"
std::string restart_line(int restart, int most, const RunSpec& run);

}  // namespace heddle::cli
