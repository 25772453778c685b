// Assignment of boxes that several ranks hold to the rank that writes them.
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

// Returns the rank that writes each box, after Megatron's fully parallel save: boxes with the fewest holders
// first, of those the largest, of those the first; each goes to the holder with the least to write so far,
// the lowest rank of several. A pure function, so every rank computes the same result.
HEDDLE_API std::vector<int> assign_writers(std::span<const Held> boxes, int ranks);

// Into how many ranges of its first dim a box of `rows` rows is cut, so that one large replicated box (an
// embedding) does not keep one rank writing after all others: none is larger than a sixteenth of a rank's
// share of `total` bytes or kLeastCut, whichever is more. 1 for a box with one holder.
inline constexpr uint64_t kLeastCut = uint64_t{4} << 20;
HEDDLE_API int64_t cuts(const Held& box, int64_t rows, uint64_t total, int ranks);

}  // namespace heddle::checkpoint
