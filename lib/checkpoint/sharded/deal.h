// Which rank writes which box, where several ranks hold the same ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/base/export.h"

namespace heddle::checkpoint {

// A box that is to be written once.
struct Held {
  uint64_t bytes = 0;
  std::vector<int> ranks;  // that hold it, ascending; at least one
};

// The rank that writes each box, after Megatron's fully parallel save: boxes with the fewest holders first,
// of those the largest, of those the first; each goes to the holder that has the least to write so far, the
// lowest rank of several. A function of its arguments alone, so every rank comes to the same deal.
HEDDLE_API std::vector<int> deal(std::span<const Held> boxes, int ranks);

// Into how many stretches of its first dim a box of `rows` rows is cut, so that one box which several ranks
// hold (an embedding) does not keep one of them writing after all others: none is larger than a sixteenth of
// a rank's share of `total` bytes or kLeastCut, whichever is more. 1 for a box with one holder.
inline constexpr uint64_t kLeastCut = uint64_t{4} << 20;
HEDDLE_API int64_t cuts(const Held& box, int64_t rows, uint64_t total, int ranks);

}  // namespace heddle::checkpoint
