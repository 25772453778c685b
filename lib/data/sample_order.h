// Order of the samples: a permutation that depends only on the seed and the epoch.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace heddle {

// torch: the permutation of PyTorch's sampler, which NeMo AutoModel uses.
enum class Shuffle { off, on, torch };

// Returns torch.randperm(size) of a CPU generator with this seed.
std::vector<int64_t> torch_permutation(int64_t size, uint64_t seed);

// A counter-based permutation of [0, size): a Feistel network over the next power of four with cycle walking
// (Black and Rogaway 2002). Each position is computed directly and nothing is stored. Shuffle::torch stores
// its permutation, 8 bytes per sample.
class SampleOrder {
 public:
  SampleOrder(int64_t size, Shuffle shuffle, uint64_t seed, int64_t epoch);
  int64_t size() const { return size_; }
  // Returns the sample at position `place` in [0, size).
  int64_t operator[](int64_t place) const;

 private:
  uint64_t turn(uint64_t value) const;

  int64_t size_;
  Shuffle shuffle_;
  int half_bits_ = 0;
  std::array<uint64_t, 6> keys_{};
  std::shared_ptr<const std::vector<int64_t>> stored_;  // for Shuffle::torch
};

}  // namespace heddle
