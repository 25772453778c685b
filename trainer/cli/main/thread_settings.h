// How the threads of a run wait for each other.
#pragma once

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Threads of OpenMP spin while they wait, and take the cores from threads that work: of other local ranks
// (OMP_NUM_THREADS) or other processes. waiting_of() says how they wait instead, unless the environment does.
// Call before LibTorch, and OpenMP with it, is loaded.
void choose_waiting(const Command& command);

}  // namespace heddle::cli
