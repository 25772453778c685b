// The loops of blocked attention where a tile's queries see all their keys at once. Included by
// attend_tile_cpu.cpp alone, as attend_tile.h is.
#pragma once

#include <cmath>
#include <cstdint>

#include "lib/nn/attention/attend_tile.h"

namespace heddle::model::tile {

// scores [rows, kWholeKeys] = queries keys^T for the visible keys, in whole registers.
template <class Set, class Number = typename Set::Number>
HEDDLE_INLINE void scores_of_all(const WholeTile<Number>& tile, const Columns& columns) {
  const int64_t last = columns.first + columns.count;
  Fetch fetch = tile.fetch;
  for (int64_t from = columns.first, to; from < last; from = to) {
    const int64_t block = from / kBlockKeys * kBlockKeys;
    to = block + kBlockKeys < last ? block + kBlockKeys : last;
    product<Set, false>(Operands<Number>{tile.queries, tile.query_row, 1,
                                         tile.keys_by_column + block * tile.head_dim + (from - block),
                                         kBlockKeys, tile.scores + from, kWholeKeys},
                        tile.rows, to - from, tile.head_dim, FetchRows(fetch));
    fetch = {};
  }
}

// One query's scores of `columns` become weights, 0 where it does not see; sets its log-sum; returns
// what the sum of values is multiplied by.
template <class Set, class Number = typename Set::Number>
HEDDLE_INLINE Number weigh_all(const WholeTile<Number>& tile, int64_t row, const Columns& columns) {
  constexpr int64_t kLanes = Set::kLanes;
  const KeyRange seen = tile.seen[row];
  Number* const weights = tile.scores + row * kWholeKeys;
  const int64_t last = columns.first + columns.count;
  if (seen.begin >= seen.end) {
    clear(weights, columns.first, last);
    tile.log_sums[row] = -INFINITY;
    return 0;
  }
  const int64_t begin = seen.begin / kLanes * kLanes, end = (seen.end + kLanes - 1) / kLanes * kLanes;
  clear(weights, columns.first, begin);
  clear(weights, end, last);
  Number largest = -INFINITY, total = 0;
  weigh<Set>(weights, seen, begin, end, tile.cap, largest, total);
  tile.log_sums[row] = largest + std::log(total);
  return 1 / total;
}

template <class Set, class Number = typename Set::Number>
HEDDLE_INLINE void attend_whole(const WholeTile<Number>& tile) {
  const Columns columns = columns_of(tile);
  scores_of_all<Set>(tile, columns);
  Number shares[kTileRows];
  for (int64_t row = 0; row < tile.rows; ++row) shares[row] = weigh_all<Set>(tile, row, columns);
  product<Set, false>(Operands<Number>{tile.scores + columns.begin, kWholeKeys, 1,
                                       tile.values + columns.begin * tile.value_width, tile.value_width,
                                       tile.out, tile.out_row},
                      tile.rows, tile.value_width, columns.end - columns.begin, FetchRows(tile.second_fetch));
  for (int64_t row = 0; row < tile.rows; ++row)
    for (int64_t i = 0; i < tile.value_width; i += Set::kLanes)
      vector_at<Set>(tile.out + row * tile.out_row + i) *= shares[row];
}

}  // namespace heddle::model::tile
