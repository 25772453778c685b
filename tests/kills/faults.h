// Disks that fail at one operation of a save after the other, and what must be true after each.
#pragma once

#include <filesystem>
#include <string>

#include "life.h"

namespace kills {

// Lets a training of several steps resume from a checkpoint, once for each `stride`-th operation of each rank
// and each way in which a disk fails (full, no permission, broken), and then once more on a sound disk. Gives
// how many times it failed. Throws Broken.
int fail_everywhere(const Training& training, const std::filesystem::path& folder, int stride);

// The same with a directory that the run may not write to, by its mode. Throws Broken.
void fail_without_permission(Training training, const std::filesystem::path& folder);

}  // namespace kills
