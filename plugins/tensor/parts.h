// Split of parameter dims and of a microbatch's token rows over the ranks of an axis.
#pragma once

#include <algorithm>
#include <cstdint>

namespace heddle::tensor {

// Indices [begin, begin + count) of one rank.
struct Part {
  int64_t begin = 0, count = 0;
  bool operator==(const Part&) const = default;
};

// Part of a parameter's dim. The first size % ranks ranks hold one index more.
inline Part part_of(int64_t size, int ranks, int rank) {
  const int64_t least = size / ranks, more = size % ranks;
  return {rank * least + std::min<int64_t>(rank, more), least + (rank < more ? 1 : 0)};
}

// Token rows per rank in a gather's buffer: equal for all ranks.
inline int64_t row_chunk(int64_t rows, int ranks) {
  return (rows + ranks - 1) / ranks;
}

// Part of the token rows. The first ranks hold whole chunks, so that a gathered buffer has its padding at the
// end. The last ranks hold fewer rows, or none.
inline Part rows_of(int64_t rows, int ranks, int rank) {
  const int64_t chunk = row_chunk(rows, ranks), begin = std::min(rank * chunk, rows);
  return {begin, std::min(chunk, rows - begin)};
}

}  // namespace heddle::tensor
