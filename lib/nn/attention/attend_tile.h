// The loops of blocked attention on the CPU, for one tile: a few queries and one block of keys. Included by
// attend_tile_cpu.cpp alone, which compiles them for several generations of x86-64.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "lib/nn/attention/tile_products.h"
#include "lib/nn/cpu/attend_tile_cpu.h"

namespace heddle::model::tile {

// x = e^x to about 1 ulp of fp32, for x <= 88; below -87 it is about 1e-38.
template <class Set>
HEDDLE_INLINE void exponential(typename Set::Vector& x) {
  if constexpr (std::is_same_v<typename Set::Number, double>) {
    for (int lane = 0; lane < Set::kLanes; ++lane) x[lane] = std::exp(x[lane]);
  } else {
    using Vector = typename Set::Vector;
    using Wholes = typename Set::Wholes;
    x = x < -87.0f ? Vector{} - 87.0f : x;
    const Vector shifted = x * 1.44269504f + 12582912.0f;  // the nearest whole number in the low bits
    const Vector whole = shifted - 12582912.0f;
    const Vector rest = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    Vector sum = rest * 1.9875691500e-4f + 1.3981999507e-3f;  // coefficients: Cephes, expf
    sum = sum * rest + 8.3334519073e-3f;
    sum = sum * rest + 4.1665795894e-2f;
    sum = sum * rest + 1.6666665459e-1f;
    sum = sum * rest + 5.0000001201e-1f;
    sum = sum * rest * rest + rest + 1.0f;
    const Wholes power =
        (reinterpret_cast<const Wholes&>(shifted) << 23) + reinterpret_cast<const Wholes&>(sum);
    x = reinterpret_cast<const Vector&>(power);
  }
}

// x = cap * tanh(x / cap).
template <class Set>
HEDDLE_INLINE void cap_softly(typename Set::Vector& x, typename Set::Number cap) {
  using Vector = typename Set::Vector;
  Vector size = x < 0 ? -x : x;
  Vector power = size * (-2 / cap);
  exponential<Set>(power);
  const Vector capped = cap * ((1 - power) / (1 + power));
  x = x < 0 ? -capped : capped;
}

struct Larger {
  template <class Any>
  HEDDLE_INLINE static void join(Any& into, const Any& value) {
    into = into > value ? into : value;
  }
};
struct Sum {
  template <class Any>
  HEDDLE_INLINE static void join(Any& into, const Any& value) {
    into += value;
  }
};

// Reduces the elements of a vector to one, half by half.
template <class Join, int Lanes, class Number>
HEDDLE_INLINE Number join_halves(const void* x) {
  if constexpr (Lanes == 1) {
    return *static_cast<const Number*>(x);
  } else {
    typedef Number Half __attribute__((vector_size(Lanes / 2 * sizeof(Number)), may_alias));
    Half low, high;
    std::memcpy(&low, x, sizeof low);
    std::memcpy(&high, static_cast<const char*>(x) + sizeof low, sizeof high);
    Join::join(low, high);
    return join_halves<Join, Lanes / 2, Number>(&low);
  }
}
template <class Set, class Join>
HEDDLE_INLINE typename Set::Number join_lanes(const typename Set::Vector& x) {
  return join_halves<Join, Set::kLanes, typename Set::Number>(&x);
}

template <class Number>
HEDDLE_INLINE void clear(Number* numbers, int64_t begin, int64_t end) {
  if (end > begin) std::memset(numbers + begin, 0, static_cast<size_t>(end - begin) * sizeof(Number));
}

template <class Number>
inline constexpr Number kPlaces[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// Sets the elements of x whose keys the query does not see to `other`; element 0 is the key `place`. Keys
// are counted from the first of the tile, and seen.begin <= seen.end. One comparison of distances from the
// middle: GCC 12 computes a choice by two comparisons element by element.
template <class Set>
HEDDLE_INLINE void keep_seen(typename Set::Vector& x, KeyRange seen, int64_t place,
                             typename Set::Number otherwise) {
  using Vector = typename Set::Vector;
  using Number = typename Set::Number;
  static_assert(2 * kWholeKeys <= 4096, "squares of distances below 2 * kWholeKeys are exact in float");
  const auto twice_middle = static_cast<Number>(seen.begin + seen.end - 1);
  const auto count = static_cast<Number>(seen.end - seen.begin);
  const Vector away = 2 * (vector_at<Set>(kPlaces<Number>) + static_cast<Number>(place)) - twice_middle;
  x = away * away < count * count ? x : Vector{} + otherwise;
}

// Weights are relative to a score that is at most this much below the largest: sums up to e^8 times larger
// are as exact, and few blocks rescale what came before.
inline constexpr int kSlack = 8;

// One query's scores [first, last) become weights: e^(score - largest) where it sees the key, 0 elsewhere.
// Updates the score that weights are relative to and the sum of its weights; returns what earlier sums are
// multiplied by.
template <class Set, class Number = typename Set::Number>
HEDDLE_INLINE Number weigh(Number* scores, KeyRange seen, int64_t first, int64_t last, Number cap,
                           Number& largest, Number& total) {
  using Vector = typename Set::Vector;
  const auto hides = [=](int64_t i) { return seen.begin > i || seen.end < i + Set::kLanes; };
  if (cap > 0)
    for (int64_t i = first; i < last; i += Set::kLanes) cap_softly<Set>(vector_at<Set>(scores + i), cap);
  Vector most = Vector{} - static_cast<Number>(INFINITY);
  for (int64_t i = first; i < last; i += Set::kLanes) {
    Vector next = vector_at<Set>(scores + i);
    if (hides(i)) keep_seen<Set>(next, seen, i, -INFINITY);
    most = next > most ? next : most;
  }
  const Number before = largest;
  const Number here = join_lanes<Set, Larger>(most);
  largest = here > before + static_cast<Number>(kSlack) ? here : before;
  Vector sums = {};
  for (int64_t i = first; i < last; i += Set::kLanes) {
    Vector weights = vector_at<Set>(scores + i) - largest;
    exponential<Set>(weights);
    if (hides(i)) keep_seen<Set>(weights, seen, i, 0);
    sums += weights;
    vector_at<Set>(scores + i) = weights;
  }
  const Number sum = join_lanes<Set, Sum>(sums);
  // Nothing has been summed before the first score: there is nothing to rescale.
  const Number keep = before == largest || before == -INFINITY ? 1 : std::exp(before - largest);
  total = total * keep + sum;
  return keep;
}

// The keys that a tile's queries see.
struct Columns {
  int64_t begin, end;    // what some query sees
  int64_t first, count;  // the same in whole registers
};

template <class Number>
HEDDLE_INLINE Columns columns_of(const Tile<Number>& tile) {
  Columns out{tile.seen[0].begin, tile.seen[0].end, 0, 0};
  bool any = false;
  for (int64_t row = 0; row < tile.rows; ++row) {
    const KeyRange& seen = tile.seen[row];
    if (seen.begin >= seen.end) continue;
    out.begin = any && out.begin < seen.begin ? out.begin : seen.begin;
    out.end = any && out.end > seen.end ? out.end : seen.end;
    any = true;
  }
  if (!any) return {};
  out.first = out.begin / kPadding * kPadding;
  out.count = (out.end + kPadding - 1) / kPadding * kPadding - out.first;
  return out;
}

template <class Set, class Number = typename Set::Number>
HEDDLE_INLINE void attend(const AttendTile<Number>& tile) {
  const Columns columns = columns_of(tile);
  if (columns.count == 0) return;
  const int64_t last = columns.first + columns.count;
  Number* const scores = tile.scores;
  product<Set, false>(Operands<Number>{tile.queries, tile.query_row, 1, tile.keys_by_column + columns.first,
                                       kBlockKeys, scores + columns.first, kBlockKeys},
                      tile.rows, columns.count, tile.head_dim, FetchRows(tile.fetch));
  for (int64_t row = 0; row < tile.rows; ++row) {
    Number* const weights = scores + row * kBlockKeys;
    if (tile.seen[row].begin >= tile.seen[row].end) {
      clear(weights, columns.first, last);
      continue;
    }
    const Number keep = weigh<Set>(weights, tile.seen[row], columns.first, last, tile.cap, tile.largest[row],
                                   tile.totals[row]);
    if (keep == 1) continue;
    Number* const out = tile.out + row * tile.out_row;
    for (int64_t i = 0; i < tile.value_width; i += Set::kLanes) vector_at<Set>(out + i) *= keep;
  }
  product<Set, true>(
      Operands<Number>{scores + columns.begin, kBlockKeys, 1, tile.values + columns.begin * tile.value_width,
                       tile.value_width, tile.out, tile.out_row},
      tile.rows, tile.value_width, columns.end - columns.begin);
}

// Calls body.template operator()<Count>() for Count = count: loops of a known length, which the compiler
// unrolls.
template <class Body>
HEDDLE_INLINE void with_count(int64_t count, const Body& body) {
  static_assert(kBlockKeys == 4 * kPadding);
  switch (count / kPadding) {
    case 4:
      return body.template operator()<4 * kPadding>();
    case 3:
      return body.template operator()<3 * kPadding>();
    case 2:
      return body.template operator()<2 * kPadding>();
    default:
      return body.template operator()<kPadding>();
  }
}

// One query's weights from its scores, and the gradient of its scores from that of its weights; 0 for keys
// that it does not see.
template <class Set, int64_t Count, bool Masked, class Number = typename Set::Number>
HEDDLE_INLINE void score_gradient(const GradientTile<Number>& tile, int64_t row, int64_t first) {
  using Vector = typename Set::Vector;
  Number* const weights = tile.weights + row * kBlockKeys;
  Number* const gradients = tile.gradients + row * kBlockKeys;
  const Number log_sum = tile.log_sums[row], along = tile.along[row], cap = tile.cap;
  for (int64_t i = first; i < first + Count; i += Set::kLanes) {
    Vector score = vector_at<Set>(weights + i);
    Vector slope = Vector{} + 1;
    if (cap > 0) {
      cap_softly<Set>(score, cap);
      slope -= (score / cap) * (score / cap);
    }
    score -= log_sum;
    exponential<Set>(score);
    Vector gradient = score * (vector_at<Set>(gradients + i) - along) * slope;
    if constexpr (Masked) {
      keep_seen<Set>(score, tile.seen[row], i, 0);
      keep_seen<Set>(gradient, tile.seen[row], i, 0);
    }
    vector_at<Set>(weights + i) = score;
    vector_at<Set>(gradients + i) = gradient;
  }
}

// Lanes of both rows outside of [first, last) are 0.
template <class Set, class Number = typename Set::Number>
HEDDLE_INLINE void clear_around(const GradientTile<Number>& tile, int64_t row, int64_t first, int64_t last) {
  Number* const weights = tile.weights + row * kBlockKeys;
  Number* const gradients = tile.gradients + row * kBlockKeys;
  const auto clear = [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += Set::kLanes)
      vector_at<Set>(weights + i) = vector_at<Set>(gradients + i) = typename Set::Vector{};
  };
  clear(0, first);
  clear(last, kBlockKeys);
}

template <class Set, int64_t Count, class Number = typename Set::Number>
HEDDLE_INLINE void score_gradients(const GradientTile<Number>& tile, int64_t first) {
  for (int64_t row = 0; row < tile.rows; ++row) {
    const KeyRange& seen = tile.seen[row];
    if (seen.begin >= seen.end) {
      clear_around<Set>(tile, row, 0, 0);
      continue;
    }
    if (seen.begin <= first && seen.end >= first + Count)
      score_gradient<Set, Count, false>(tile, row, first);
    else
      score_gradient<Set, Count, true>(tile, row, first);
    if (Count < kBlockKeys) clear_around<Set>(tile, row, first, first + Count);
  }
}

template <class Set, class Number = typename Set::Number>
HEDDLE_INLINE void gradients_of_tile(const GradientTile<Number>& tile) {
  const Columns columns = columns_of(tile);
  if (columns.count == 0) return;
  product<Set, false>(Operands<Number>{tile.queries, tile.query_row, 1, tile.keys_by_column + columns.first,
                                       kBlockKeys, tile.weights + columns.first, kBlockKeys},
                      tile.rows, columns.count, tile.head_dim, FetchRows(tile.fetch));
  product<Set, false>(Operands<Number>{tile.d_out, tile.d_out_row, 1, tile.values_by_column + columns.first,
                                       kBlockKeys, tile.gradients + columns.first, kBlockKeys},
                      tile.rows, columns.count, tile.value_dim, FetchRows(tile.second_fetch));
  with_count(
      columns.count, [&]<int64_t Count>() __attribute__((always_inline)) {
        score_gradients<Set, Count>(tile, columns.first);
      });
  const Operands<Number> operands{tile.gradients + columns.begin,
                                  kBlockKeys,
                                  1,
                                  tile.keys + columns.begin * tile.key_width,
                                  tile.key_width,
                                  tile.d_queries,
                                  tile.d_query_row};
  const int64_t depth = columns.end - columns.begin;
  if (tile.adds)
    product<Set, true>(operands, tile.rows, tile.key_width, depth);
  else
    product<Set, false>(operands, tile.rows, tile.key_width, depth);
}

}  // namespace heddle::model::tile
