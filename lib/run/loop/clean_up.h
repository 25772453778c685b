// What interrupted runs have left in a directory of checkpoints.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace heddle {

// Takes away what interrupted saves and removals have left in a directory of checkpoints, or of those in the
// making, and gives the names; what has such a name and holds something else stays. No other run may be at
// work there.
std::vector<std::string> sweep(const std::filesystem::path& root);

// Sweeps the checkpoints' root and the directory of stages, with a warning on standard error for each name.
// Removes nothing without the run's lock, and says so.
void clean_up(const std::filesystem::path& root, const std::filesystem::path& stages, bool is_locked);

}  // namespace heddle
