// Small products in the registers of an instruction set, for attend_tile.h.
#pragma once

#include <cstdint>

#include "lib/nn/cpu/attend_tile_cpu.h"

#define HEDDLE_INLINE inline __attribute__((always_inline))

namespace heddle::model::tile {

// Registers of an instruction set: a product holds kTileRows x kColumns of them as sums.
struct Avx512 {
  using Number = float;
  using Whole = int32_t;
  typedef float Vector __attribute__((vector_size(64), aligned(4), may_alias));
  typedef int32_t Wholes __attribute__((vector_size(64), aligned(4), may_alias));
  static constexpr int kLanes = 16, kColumns = 4;
};
struct Avx2 {
  using Number = float;
  using Whole = int32_t;
  typedef float Vector __attribute__((vector_size(32), aligned(4), may_alias));
  typedef int32_t Wholes __attribute__((vector_size(32), aligned(4), may_alias));
  static constexpr int kLanes = 8, kColumns = 2;
};
struct Sse2 {
  using Number = float;
  using Whole = int32_t;
  typedef float Vector __attribute__((vector_size(16), aligned(4), may_alias));
  typedef int32_t Wholes __attribute__((vector_size(16), aligned(4), may_alias));
  static constexpr int kLanes = 4, kColumns = 2;
};
struct Doubles {
  using Number = double;
  using Whole = int64_t;
  typedef double Vector __attribute__((vector_size(16), aligned(8), may_alias));
  typedef int64_t Wholes __attribute__((vector_size(16), aligned(8), may_alias));
  static constexpr int kLanes = 2, kColumns = 2;
};

template <class Set>
HEDDLE_INLINE const typename Set::Vector& vector_at(const typename Set::Number* from) {
  return *reinterpret_cast<const typename Set::Vector*>(from);
}
template <class Set>
HEDDLE_INLINE typename Set::Vector& vector_at(typename Set::Number* to) {
  return *reinterpret_cast<typename Set::Vector*>(to);
}

// sum += factor * numbers. Specialised for registers of other factors.
template <class Set>
HEDDLE_INLINE void add_product(typename Set::Vector& sum, typename Set::Number factor,
                               const typename Set::Vector& numbers) {
  sum += factor * numbers;
}

// Matrices of a product; `a` is read as a[row * a_row + k * a_step].
template <class Number>
struct Operands {
  const Number* a;
  int64_t a_row, a_step;
  const Number* b;
  int64_t b_row;
  Number* c;
  int64_t c_row;
  Fetch fetch{};
};

constexpr int64_t kLine = 64;  // bytes of a line of the cache

enum class How { kSets, kAdds, kSetsAndFetches };

template <class Set, int Rows, int Columns, class Number = typename Set::Number>
HEDDLE_INLINE void add_step(typename Set::Vector (&sums)[Rows][Columns], const Operands<Number>& of,
                            int64_t k) {
  const Number *a = of.a + k * of.a_step, *b = of.b + k * of.b_row;
  for (int row = 0; row < Rows; ++row) {
    const Number factor = a[row * of.a_row];
    for (int column = 0; column < Columns; ++column)
      add_product<Set>(sums[row][column], factor, vector_at<Set>(b + column * Set::kLanes));
  }
}

// c [Rows, Columns * lanes] (+)= a b over `depth`, in registers.
template <class Set, int Rows, int Columns, How how, class Number = typename Set::Number>
HEDDLE_INLINE void product_in_registers(const Operands<Number>& of, int64_t depth) {
  typename Set::Vector sums[Rows][Columns];
  for (int row = 0; row < Rows; ++row)
    for (int column = 0; column < Columns; ++column)
      sums[row][column] = how == How::kAdds ? vector_at<Set>(of.c + row * of.c_row + column * Set::kLanes)
                                            : typename Set::Vector{};
  int64_t k = 0;
  if constexpr (how == How::kSetsAndFetches) {
    const char* at = of.fetch.at;
    const int64_t lines = of.fetch.lines < depth ? of.fetch.lines : depth;
    const int64_t apart = lines > 0 && 2 * lines <= depth ? 2 : 1;
    int64_t left = of.fetch.in_row;
    for (const int64_t end = lines * apart; k < end;) {
      __builtin_prefetch(at, 0, 2);
      add_step<Set, Rows, Columns>(sums, of, k++);
      if (apart == 2) add_step<Set, Rows, Columns>(sums, of, k++);
      at += kLine;
      if (--left == 0) at += of.fetch.skip, left = of.fetch.in_row;
    }
  }
  for (; k < depth; ++k) add_step<Set, Rows, Columns>(sums, of, k);
  for (int row = 0; row < Rows; ++row)
    for (int column = 0; column < Columns; ++column)
      vector_at<Set>(of.c + row * of.c_row + column * Set::kLanes) = sums[row][column];
}

// c [Rows, columns] (+)= a b; columns: a multiple of kLanes.
template <class Set, int Rows, How how, class Number = typename Set::Number>
HEDDLE_INLINE void product_of_rows(Operands<Number> of, int64_t columns, int64_t depth) {
  const auto pass = [&of](int64_t done) {
    of.b += done;
    of.c += done;
    of.fetch.lines = 0;  // once
  };
  constexpr int64_t kWide = Set::kColumns * Set::kLanes, kHalf = kWide / 2;
  for (; columns >= kWide; columns -= kWide, pass(kWide))
    product_in_registers<Set, Rows, Set::kColumns, how>(of, depth);
  if constexpr (Set::kColumns == 4)
    if (columns == 3 * Set::kLanes) return product_in_registers<Set, Rows, 3, how>(of, depth);
  for (; columns >= kHalf; columns -= kHalf, pass(kHalf))
    product_in_registers<Set, Rows, Set::kColumns / 2, how>(of, depth);
  for (; columns > 0; columns -= Set::kLanes, pass(Set::kLanes))
    product_in_registers<Set, Rows, 1, how>(of, depth);
}

// The same for 1 to kTileRows rows.
template <class Set, How how, class Number = typename Set::Number>
HEDDLE_INLINE void product(const Operands<Number>& of, int64_t rows, int64_t columns, int64_t depth) {
  static_assert(kTileRows == 6);
  switch (rows) {
    case 6:
      return product_of_rows<Set, 6, how>(of, columns, depth);
    case 5:
      return product_of_rows<Set, 5, how>(of, columns, depth);
    case 4:
      return product_of_rows<Set, 4, how>(of, columns, depth);
    case 3:
      return product_of_rows<Set, 3, how>(of, columns, depth);
    case 2:
      return product_of_rows<Set, 2, how>(of, columns, depth);
    default:
      return product_of_rows<Set, 1, how>(of, columns, depth);
  }
}

}  // namespace heddle::model::tile
