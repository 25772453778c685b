// Split of rows over ranks, layout of a flat buffer, and the reshard and prefetch policies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "heddle/sharding/model.h"

namespace heddle::fsdp2 {

// Rows of one rank: ceil(rows / ranks), or fewer or none on the last ranks.
struct Rows {
  int64_t begin = 0, count = 0;
  bool operator==(const Rows&) const = default;
};

inline int64_t chunk_rows(int64_t rows, int ranks) {
  return (rows + ranks - 1) / ranks;
}

inline Rows rows_of(int64_t rows, int ranks, int rank) {
  const int64_t chunk = chunk_rows(rows, ranks), begin = std::min(rank * chunk, rows);
  return {begin, std::min(chunk, rows - begin)};
}

constexpr int64_t kAlign = 16;  // in elements: 64 bytes for 4-byte elements

inline int64_t aligned(int64_t elements) {
  return (elements + kAlign - 1) / kAlign * kAlign;
}

// Places parts consecutively with alignment. add() returns the offset of a part.
class Line {
 public:
  int64_t add(int64_t elements) {
    const int64_t at = aligned(end_);
    end_ = at + elements;
    return at;
  }
  int64_t elements() const { return end_; }

 private:
  int64_t end_ = 0;
};

// Returns the reshard policy of each unit. Default: every unit is freed except the last, whose backward comes
// next. In a pipeline no unit is freed, because it has many microbatches.
inline std::vector<sharding::Reshard> reshards(size_t units, std::optional<bool> after_forward,
                                               int pipeline_ranks) {
  using sharding::Reshard;
  if (!after_forward && pipeline_ranks > 1) after_forward = false;
  if (after_forward)
    return std::vector<Reshard>(units,
                                *after_forward ? Reshard::after_forward : Reshard::after_last_backward);
  std::vector<Reshard> out(units, Reshard::after_forward);
  if (units > 0) out.back() = Reshard::after_backward;
  return out;
}

// Placement of units whose parameters are all frozen. root: sharded, and whole from their first use to the
// end of the step. per_layer: like every other unit. replicate: whole on every rank.
enum class Frozen { root, per_layer, replicate };

// Number of units to prefetch.
struct Ahead {
  int64_t forward = 1, backward = 1;
  bool operator==(const Ahead&) const = default;
};

// Returns the prefetch depth. `asked` applies only if every microbatch gathers units again: not in a
// pipeline, and not if units stay whole. Otherwise and by default the depth is one unit.
inline Ahead ahead(std::optional<Ahead> asked, std::optional<bool> reshard_after_forward,
                   int pipeline_ranks) {
  return asked && reshard_after_forward != false && pipeline_ranks == 1 ? *asked : Ahead();
}

}  // namespace heddle::fsdp2
