// One start of `heddle train` with its ranks, as processes that are killed at a chosen operation.
#pragma once

#include <filesystem>
#include <string>

#include "kill_point.h"

namespace kills {

// What one chain of lives trains.
struct Training {
  std::string name;
  int ranks = 1;
  std::string yaml;                                  // without checkpoint_dir
  int kept = 0;                                      // max_recent_checkpoints; 0: all
  enum class User { own, nobody } user = User::own;  // nobody: as far as that can be chosen
};

// The same training, ended after so many steps.
Training up_to(Training training, int steps);

struct End {
  int status = -1;     // as a shell says it: 137 after SIGKILL
  std::string errors;  // what it wrote to standard error
};

// Runs until the training is done or the rank `killed_rank` was killed; -1: none is.
End live(const Training& training, const std::filesystem::path& folder, const KillPoint& point,
         int killed_rank);

// The whole of `heddle train --max-restarts RESTARTS`: whichever rank comes to the operation is killed, in
// its first life.
End live_again(const Training& training, const std::filesystem::path& folder, const KillPoint& point,
               int restarts);

// Reads every tensor of every checkpoint that is in the folder, in a process of its own: "" or the first
// error.
std::string read_all(const std::filesystem::path& folder);

// How the parameters of two checkpoints differ, read in a process of its own: "" where all bits agree.
std::string apart(const std::filesystem::path& one, const std::filesystem::path& other);

}  // namespace kills
