// Runs whose launcher restarts killed ranks.
#pragma once

#include <cstdint>
#include <filesystem>

#include "life.h"

namespace kills {

// Runs a short training `runs` times, kills one rank of each run at a random operation, and compares the
// final state with a run without kills. Returns the number of restarts. Throws Broken.
int restart_after_kills(const Training& training, const std::filesystem::path& folder, int runs,
                        uint64_t seed);

}  // namespace kills
