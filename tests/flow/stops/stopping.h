// Runs that are asked to end, and their resumption.
#pragma once

#include <cstdint>
#include <string>

#include "flow/model_files.h"
#include "flow/training_files.h"
#include "started.h"

namespace flow {

// More steps than a test waits for, saved only at the end.
inline const Words kLong = {"--step_scheduler.max_steps",        "1000000",
                            "--step_scheduler.num_epochs",       "1000000",
                            "--step_scheduler.ckpt_every_steps", "1000000"};

// Waits for a few steps of `run`.
bool under_way(const TrainingFiles& files);

// Returns N of "stopped by SIGTERM after step N of ...: saved DIRECTORY; ...", or -1.
int64_t step_of(const std::string& output);

// Counts the checkpoints of `run`, including incomplete ones.
size_t checkpoints(const TrainingFiles& files);

// Checks that `run`, which stopped after `steps` steps, and a run that never stopped have equal bits some
// steps later.
void expect_goes_on(const TrainingFiles& files, const Words& words, int64_t steps);

}  // namespace flow
