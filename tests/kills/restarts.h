// Runs whose launcher starts lost ranks again.
#pragma once

#include <cstdint>
#include <filesystem>

#include "life.h"

namespace kills {

// Runs a short training so often, kills a rank of each at a random operation, and compares the end of each to
// the undisturbed one. Gives the number of restarts. Throws Broken.
int restart_after_kills(const Training& training, const std::filesystem::path& folder, int runs,
                        uint64_t seed);

}  // namespace kills
