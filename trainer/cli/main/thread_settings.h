// How the threads of a run wait for each other.
#pragma once

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Threads of OpenMP spin while they wait. Where those of all local ranks are more than the cores
// (OMP_NUM_THREADS), they take these from the threads that work, so waiting becomes passive, unless the
// environment says how to wait. Call before LibTorch, and OpenMP with it, is loaded.
void choose_waiting(const Command& command);

}  // namespace heddle::cli
