// Disk errors at each file operation of a save, and checks after each error.
#pragma once

#include <filesystem>
#include <string>

#include "life.h"

namespace kills {

// Resumes a training of several steps once for each `stride`-th file operation of each rank and each disk
// error (full, no permission, I/O error), then once more without errors. Returns the number of failed runs.
// Throws Broken.
int fail_everywhere(const Training& training, const std::filesystem::path& folder, int stride);

// Does the same once with a directory whose mode denies writing. Throws Broken.
void fail_without_permission(Training training, const std::filesystem::path& folder);

}  // namespace kills
