// Lives that each go on where the one before was killed, and what must be true after each of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "life.h"

namespace kills {

class Chain {
 public:
  // Runs the training undisturbed in folder/whole, once for each rank. Throws Broken.
  Chain(Training training, std::filesystem::path folder, uint64_t seed);

  // Kills `kills` lives at random moments and compares the end of each training to the undisturbed one; gives
  // the number of such ends. Throws Broken.
  int kill(int kills);

  // Called after every tenth kill that has left a checkpoint, with the folder of the killed training and that
  // of the undisturbed one.
  using Look = std::function<void(const std::filesystem::path& cut, const std::filesystem::path& whole)>;
  void look(Look look) { look_ = std::move(look); }

 private:
  void live_once();  // to a random moment
  void check_the_end();
  KillPoint draw(int rank);

  Training training_;
  std::filesystem::path cut_, whole_;
  std::mt19937_64 random_;
  std::string wanted_;               // the end of the undisturbed run
  std::vector<int64_t> operations_;  // of each rank in it
  int64_t checkpoints_ = 0;          // in it
  int killed_ = 0, ends_ = 0;
  Look look_;
};

}  // namespace kills
