// The kits of strategies. Each is named after the sentence of heddle/parallel/strategy.h that it checks.
#pragma once

#include "attempt.h"
#include "training_run.h"

namespace heddle::kits {

// Runs every kit on `ranks` data-parallel ranks.
void run_strategy_kits(const Subject& subject, int ranks, Attempts& attempt);

}  // namespace heddle::kits
