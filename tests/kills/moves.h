// What a killed training has left goes on at other topologies.
#pragma once

#include <filesystem>
#include <vector>

#include "life.h"

namespace kills {

// Copies the checkpoints in `cut` beside it for each of the trainings, trains three steps more, and compares
// the parameters with those of the same step in `whole`. Gives the number of comparisons. Throws Broken.
int move_on(const std::vector<Training>& others, const std::filesystem::path& cut,
            const std::filesystem::path& whole);

}  // namespace kills
