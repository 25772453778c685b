// Waiting policy of OpenMP's threads.
#pragma once

#include "trainer/cli/commands.h"

namespace heddle::cli {

// Sets how OpenMP's threads wait, according to waiting_of(), unless the environment sets it. By default they
// spin and take cores from working threads of other local ranks (OMP_NUM_THREADS) or processes. Must be
// called before LibTorch, and OpenMP with it, is loaded.
void choose_waiting(const Command& command);

}  // namespace heddle::cli
