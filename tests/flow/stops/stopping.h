// Runs that are asked to end, and resuming from where they did.
#pragma once

#include <cstdint>
#include <string>

#include "flow/model_files.h"
#include "flow/training_files.h"
#include "started.h"

namespace flow {

// More steps than a test waits for, saved at their end only.
inline const Words kLong = {"--step_scheduler.max_steps",        "1000000",
                            "--step_scheduler.num_epochs",       "1000000",
                            "--step_scheduler.ckpt_every_steps", "1000000"};

// Waits for a few steps of `run`.
bool under_way(const TrainingFiles& files);

// "stopped by SIGTERM after step 7 of ...: saved DIRECTORY; ...": what follows "after step ", or -1.
int64_t step_of(const std::string& output);

// The checkpoints of `run`, those in the making among them.
size_t checkpoints(const TrainingFiles& files);

// `run`, which stopped after so many steps, and one that never stopped end with the same bits, some steps
// later.
void expect_goes_on(const TrainingFiles& files, const Words& words, int64_t steps);

}  // namespace flow
