// What a killed training has left goes on at other topologies.
#pragma once

#include <filesystem>
#include <vector>

#include "life.h"

namespace kills {

// For each of the trainings: copies the checkpoints in `cut`, runs one step without a learning rate, and
// compares the parameters with those of the last checkpoint, bit by bit, and the loss and the norm with those
// of the same step in `whole`. Gives the number of such steps. Throws Broken.
int move_on(const std::vector<Training>& others, const std::filesystem::path& cut,
            const std::filesystem::path& whole);

}  // namespace kills
