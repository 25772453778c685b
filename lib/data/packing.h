// Sample packing algorithms of the recipes, which use only sample lengths.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace heddle {

enum class Packer {
  thd,  // next fit in the order of the samples: a sample that does not fit closes the pack
  neat  // longest sample first, into the emptiest pack if it fits, else into a new one
};

struct PackRules {
  Packer packer = Packer::thd;
  int64_t size = 0;  // tokens per pack
  std::optional<int64_t> max_packs;
};

// Packs of samples, numbered from 0. Each pack has at least one sample.
class Packs {
 public:
  int64_t size() const { return static_cast<int64_t>(first_.size()) - 1; }
  std::span<const int64_t> operator[](int64_t pack) const;
  void begin_pack() { first_.push_back(first_.back()); }
  void add(int64_t sample) {
    samples_.push_back(sample);
    ++first_.back();
  }

 private:
  std::vector<int64_t> samples_, first_ = {0};
};

// NeMo AutoModel's packers (packed_sequence.py, neat_packing.py). Discards samples longer than a pack; all
// others are in exactly one pack, up to max_packs.
Packs pack(std::span<const int64_t> lengths, const PackRules& rules);

}  // namespace heddle
