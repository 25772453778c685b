// Resumes a killed training at other topologies.
#pragma once

#include <filesystem>
#include <vector>

#include "life.h"

namespace kills {

// For each training in `others`: copies the checkpoints in `cut`, runs one step with learning rate 0,
// compares parameters with the last checkpoint bit by bit, and compares loss and gradient norm with the same
// step in `whole`. Returns the number of such steps. Throws Broken.
int move_on(const std::vector<Training>& others, const std::filesystem::path& cut,
            const std::filesystem::path& whole);

}  // namespace kills
