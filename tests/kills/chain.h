// Repeatedly kills and resumes one training, and checks the checkpoints after each kill.
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
  // Runs the training without kills in folder/whole, once per rank. Throws Broken.
  Chain(Training training, std::filesystem::path folder, uint64_t seed);

  // Kills the training `kills` times at random moments and compares each completed training with the
  // reference. Returns the number of completed trainings. Throws Broken.
  int kill(int kills);

  // Called after every tenth kill that left a checkpoint, with the folders of the killed training and of the
  // reference training.
  using Look = std::function<void(const std::filesystem::path& cut, const std::filesystem::path& whole)>;
  void look(Look look) { look_ = std::move(look); }

 private:
  void live_once();  // runs until a random kill point
  void check_the_end();
  KillPoint draw(int rank);

  Training training_;
  std::filesystem::path cut_, whole_;
  std::mt19937_64 random_;
  std::string wanted_;               // final state of the reference run
  std::vector<int64_t> operations_;  // file operations of each rank in the reference run
  int64_t checkpoints_ = 0;          // checkpoints of the reference run
  int killed_ = 0, ends_ = 0;
  Look look_;
};

}  // namespace kills
