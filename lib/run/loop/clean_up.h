// Removes the remains of interrupted runs from checkpoint_dir.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace heddle {

// Removes unfinished checkpoints and half-removed ones from a directory of checkpoints or of stages, and
// returns their names. An entry with such a name but other contents stays. No other run may use the directory
// meanwhile.
std::vector<std::string> sweep(const std::filesystem::path& root);

// Sweeps checkpoint_dir and the directory of stages, with a warning on standard error for each removed name.
// Without the run's lock, removes nothing and warns.
void clean_up(const std::filesystem::path& root, const std::filesystem::path& stages, bool is_locked);

}  // namespace heddle
