// How rows are split over ranks, where parameters are in a flat buffer, and how long a unit stays whole.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "heddle/sharding/model.h"

namespace heddle::fsdp2 {

// The rows of one rank. Every rank holds ceil(rows / ranks) of them; the last ranks fewer, or none.
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

constexpr int64_t kAlign = 16;  // elements: 64 bytes of 4-byte ones

inline int64_t aligned(int64_t elements) {
  return (elements + kAlign - 1) / kAlign * kAlign;
}

// Places parts one after another, each aligned; add() returns the offset.
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

// A given value is used. By default every unit is freed except the last one, whose backward comes next; under
// a pipeline none is, because it has many microbatches.
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

// The placement of units whose parameters are all frozen. root: sharded, and whole from their first use to
// the end of the step. per_layer: as every other unit. replicate: whole on every rank.
enum class Frozen { root, per_layer, replicate };

// How many units are gathered ahead of the one that runs.
struct Ahead {
  int64_t forward = 1, backward = 1;
  bool operator==(const Ahead&) const = default;
};

// A given depth applies only if units are gathered again for every microbatch: not if they stay whole, and
// not in a pipeline. Otherwise, and by default, it is one unit.
inline Ahead ahead(std::optional<Ahead> asked, std::optional<bool> reshard_after_forward,
                   int pipeline_ranks) {
  return asked && reshard_after_forward != false && pipeline_ranks == 1 ? *asked : Ahead();
}

}  // namespace heddle::fsdp2
