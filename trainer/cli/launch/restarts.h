// Restarts of a run: how often, and from which checkpoint.
#pragma once

#include <optional>
#include <string>

#include "trainer/loop/job.h"

namespace heddle::cli {

// Whether a launcher says that it has started this run before: torchrun after a lost worker, Slurm after a
// requeue.
bool was_started_before();

// A run that is started again goes on from what it has saved itself, also where its configuration names an
// older checkpoint to begin with, which may be gone by then: the configuration with the name of the latest in
// checkpoint.restore_from, as checkpoints of more steps may be of another run; empty: as it is.
std::optional<Node> saved_since(const Node& configuration);

// "restart 1 of 3: all ranks are started again and go on from checkpoints/epoch_0_step_9"
std::string restart_line(int restart, int most, const Job& job);

}  // namespace heddle::cli
