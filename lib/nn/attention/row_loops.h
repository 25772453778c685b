// Loops over rows of one head, for attend_tile_cpu.cpp, which compiles them for several generations of
// x86-64.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lib/nn/attention/attend_rows.h"
#include "lib/nn/attention/attend_tile.h"

namespace heddle::model::tile {

// kLanes bfloat16 in the halves of Wholes.
template <class Set>
struct Bits {
  typedef uint16_t Halves __attribute__((vector_size(Set::kLanes * 2), aligned(2), may_alias));
  typedef uint32_t Words __attribute__((vector_size(Set::kLanes * 4), aligned(4), may_alias));
};

// kLanes numbers.
template <class Set, class Stored>
HEDDLE_INLINE void read_numbers(const Stored* from, typename Set::Vector& to) {
  using Number = typename Set::Number;
  if constexpr (std::is_same_v<Stored, Number>) {
    to = vector_at<Set>(from);
  } else if constexpr (std::is_same_v<Stored, c10::BFloat16>) {
    using Words = typename Bits<Set>::Words;
    const Words words =
        __builtin_convertvector(*reinterpret_cast<const typename Bits<Set>::Halves*>(from), Words) << 16;
    to = reinterpret_cast<const typename Set::Vector&>(words);
  } else {
    for (int lane = 0; lane < Set::kLanes; ++lane) to[lane] = static_cast<Number>(from[lane]);
  }
}

// Rounds to the nearest, ties to even.
template <class Set, class Stored>
HEDDLE_INLINE void store_numbers(const typename Set::Vector& numbers, Stored* to) {
  if constexpr (std::is_same_v<Stored, typename Set::Number>) {
    vector_at<Set>(to) = numbers;
  } else if constexpr (std::is_same_v<Stored, c10::BFloat16>) {
    using Words = typename Bits<Set>::Words;
    const Words words = reinterpret_cast<const Words&>(numbers);
    const Words rounded = (words + ((words >> 16 & 1) + 0x7fff)) >> 16;
    const Words kept = numbers == numbers ? rounded : Words{} + 0x7fc0;  // else the sum could be infinity
    *reinterpret_cast<typename Bits<Set>::Halves*>(to) =
        __builtin_convertvector(kept, typename Bits<Set>::Halves);
  } else {
    for (int lane = 0; lane < Set::kLanes; ++lane) to[lane] = static_cast<Stored>(numbers[lane]);
  }
}

inline constexpr int64_t kAhead = 8;  // rows that are fetched into the cache early: rows of a head lie apart

template <class Stored>
HEDDLE_INLINE void fetch_row_after(const Stored* row, const pack::HeadColumns<const Stored>& columns) {
  for (int64_t i = 0; i < columns.width; i += 64 / static_cast<int64_t>(sizeof(Stored)))
    __builtin_prefetch(row + kAhead * columns.row + i);
}

template <class Set, class Stored, class Number = typename Set::Number>
HEDDLE_INLINE void pack_rows(const pack::HeadColumns<const Stored>& from, int64_t count, Number scale,
                             Number* to) {
  const int64_t width = pack::padded(from.width), whole = from.width / kPadding * kPadding;
  const Stored* numbers = from.data;
  for (int64_t row = 0; row < count; ++row, to += width, numbers += from.row) {
    fetch_row_after(numbers, from);
    for (int64_t i = 0; i < whole; i += Set::kLanes) {
      typename Set::Vector x;
      read_numbers<Set>(numbers + i, x);
      vector_at<Set>(to + i) = scale * x;
    }
    for (int64_t i = whole; i < from.width; ++i) to[i] = scale * static_cast<Number>(numbers[i]);
    for (int64_t i = from.width; i < width; ++i) to[i] = 0;
  }
}

template <class Set, class Stored, class Number = typename Set::Number>
HEDDLE_INLINE void dot_rows(const pack::HeadColumns<const Stored>& a, int64_t count, const Number* b,
                            int64_t b_row, Number* sums) {
  const int64_t whole = a.width / kPadding * kPadding;
  const Stored* numbers = a.data;
  for (int64_t row = 0; row < count; ++row, b += b_row, numbers += a.row) {
    fetch_row_after(numbers, a);
    typename Set::Vector sum = {};
    for (int64_t i = 0; i < whole; i += Set::kLanes) {
      typename Set::Vector x;
      read_numbers<Set>(numbers + i, x);
      sum += x * vector_at<Set>(b + i);
    }
    Number rest = 0;
    for (int64_t i = whole; i < a.width; ++i) rest += static_cast<Number>(numbers[i]) * b[i];
    sums[row] = join_lanes<Set, Sum>(sum) + rest;
  }
}

template <class Set, bool Adds, class Stored, class Number = typename Set::Number>
HEDDLE_INLINE void write_rows(const Number* from, int64_t count, const Number* factors, int64_t step,
                              const pack::HeadColumns<Stored>& to) {
  const int64_t width = pack::padded(to.width), whole = to.width / kPadding * kPadding;
  Stored* numbers = to.data;
  for (int64_t row = 0; row < count; ++row, from += width, numbers += to.row) {
    const Number factor = factors[row * step];
    for (int64_t i = 0; i < whole; i += Set::kLanes) {
      typename Set::Vector x = factor * vector_at<Set>(from + i);
      if constexpr (Adds) {
        typename Set::Vector before;
        read_numbers<Set>(numbers + i, before);
        x += before;
      }
      store_numbers<Set>(x, numbers + i);
    }
    for (int64_t i = whole; i < to.width; ++i) {
      Number x = factor * from[i];
      if constexpr (Adds) x += static_cast<Number>(numbers[i]);
      numbers[i] = static_cast<Stored>(x);
    }
  }
}

// kPadding columns of `count` rows, transposed; rows after them are 0.
template <class Set, class Stored>
HEDDLE_INLINE void transpose(const Stored* from, int64_t row, int64_t count, float scale, float* to) {
  static_assert(Set::kLanes == kPadding);
  typename Set::Vector rows[kPadding];
  for (int i = 0; i < kPadding; ++i) {
    rows[i] = typename Set::Vector{};
    if (i < count) read_numbers<Set>(from + i * row, rows[i]);
    rows[i] *= scale;
  }
  transpose_registers<Set>(rows);
  for (int i = 0; i < kPadding; ++i) vector_at<Set>(to + i * kBlockKeys) = rows[i];
}

// kPadding rows of four columns, transposed.
template <class Stored, class Number>
HEDDLE_INLINE void four_columns(const Stored* from, int64_t row, Number scale, Number* to) {
  for (int64_t part = 0; part < kPadding; part += 4)
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t lane = 0; lane < 4; ++lane)
        to[i * kBlockKeys + part + lane] = scale * static_cast<Number>(from[(part + lane) * row + i]);
}
HEDDLE_INLINE void four_columns(const float* from, int64_t row, float scale, float* to) {
  typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
  const auto at = [](const float* x) { return *reinterpret_cast<const Four*>(x); };
  for (int64_t part = 0; part < kPadding; part += 4, from += 4 * row, to += 4) {
    const Four a = at(from), b = at(from + row), c = at(from + 2 * row), d = at(from + 3 * row);
    const Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const Four up = __builtin_shufflevector(a, b, 2, 6, 3, 7), of = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const Four columns[] = {
        __builtin_shufflevector(ab, cd, 0, 1, 4, 5), __builtin_shufflevector(ab, cd, 2, 3, 6, 7),
        __builtin_shufflevector(up, of, 0, 1, 4, 5), __builtin_shufflevector(up, of, 2, 3, 6, 7)};
    for (int64_t i = 0; i < 4; ++i) *reinterpret_cast<Four*>(to + i * kBlockKeys) = scale * columns[i];
  }
}

// The columns [0, whole) of `count` rows, at most kPadding; returns `whole`.
template <class Set, class Stored, class Number = typename Set::Number>
HEDDLE_INLINE int64_t transpose_whole(const pack::HeadColumns<const Stored>& from, int64_t count,
                                      Number scale, Number* to) {
  int64_t i = 0;
  if constexpr (Set::kLanes == kPadding) {
    for (; i + kPadding <= from.width; i += kPadding)
      transpose<Set>(from.data + i, from.row, count, scale, to + i * kBlockKeys);
  } else if (count == kPadding) {
    for (; i + 4 <= from.width; i += 4) four_columns(from.data + i, from.row, scale, to + i * kBlockKeys);
  }
  return i;
}

template <class Set, class Stored, class Number = typename Set::Number>
HEDDLE_INLINE void pack_rows_by_column(const pack::HeadColumns<const Stored>& from, int64_t count,
                                       Number scale, Number* to) {
  for (int64_t first = 0; first < count; first += kPadding) {
    const int64_t rows = count - first < kPadding ? count - first : kPadding, part = first % kBlockKeys;
    const pack::HeadColumns<const Stored> here = from.from(first);
    Number* const block = to + (first - part) * from.width + part;
    for (int64_t i = transpose_whole<Set>(here, rows, scale, block); i < from.width; ++i)
      for (int64_t row = 0; row < kPadding; ++row)
        block[i * kBlockKeys + row] =
            row < rows ? scale * static_cast<Number>(here.data[row * from.row + i]) : Number{};
  }
}

}  // namespace heddle::model::tile
