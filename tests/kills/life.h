// One run of `heddle train` whose ranks are processes killed at a chosen file operation.
#pragma once

#include <filesystem>
#include <string>

#include "kill_point.h"

namespace kills {

// Configuration of a training that is killed and resumed.
struct Training {
  std::string name;
  int ranks = 1;
  std::string yaml;                                  // without checkpoint_dir
  int kept = 0;                                      // max_recent_checkpoints; 0: all
  enum class User { own, nobody } user = User::own;  // nobody: drops to the user nobody if permitted
};

// Returns the same training with `steps` steps.
Training up_to(Training training, int steps);

struct End {
  int status = -1;     // as shells report it: 137 after SIGKILL
  std::string errors;  // standard error
};

// Runs until the training completes or the rank `killed_rank` is killed. -1: no rank is killed.
End live(const Training& training, const std::filesystem::path& folder, const KillPoint& point,
         int killed_rank);

// Runs `heddle train --max-restarts RESTARTS`. The first rank that reaches the operation is killed, in its
// first life only.
End live_again(const Training& training, const std::filesystem::path& folder, const KillPoint& point,
               int restarts);

// Reads every tensor of every checkpoint in the folder, in a separate process. Returns the first error, or
// "".
std::string read_all(const std::filesystem::path& folder);

// Compares the parameters of two checkpoints in a separate process. Returns "" if all bits agree.
std::string apart(const std::filesystem::path& one, const std::filesystem::path& other);

}  // namespace kills
