// Small products in the registers of an instruction set, for attend_tile.h.
#pragma once

#include <cstdint>
#include <utility>

#include "core/base/widest.h"
#include "lib/nn/cpu/attend_tile_cpu.h"

namespace heddle::model::tile {

// Registers of an instruction set: a product holds kTileRows x kColumns of them as sums. Wholes are unsigned:
// sums of bits wrap around.
struct Avx512 {
  using Number = float;
  typedef float Vector __attribute__((vector_size(64), aligned(4), may_alias));
  typedef uint32_t Wholes __attribute__((vector_size(64), aligned(4), may_alias));
  static constexpr int kLanes = 16, kColumns = 4;
};
struct Avx2 {
  using Number = float;
  typedef float Vector __attribute__((vector_size(32), aligned(4), may_alias));
  typedef uint32_t Wholes __attribute__((vector_size(32), aligned(4), may_alias));
  static constexpr int kLanes = 8, kColumns = 2;
};
struct Sse2 {
  using Number = float;
  typedef float Vector __attribute__((vector_size(16), aligned(4), may_alias));
  typedef uint32_t Wholes __attribute__((vector_size(16), aligned(4), may_alias));
  static constexpr int kLanes = 4, kColumns = 2;
};
struct Doubles {
  using Number = double;
  typedef double Vector __attribute__((vector_size(16), aligned(8), may_alias));
  typedef uint64_t Wholes __attribute__((vector_size(16), aligned(8), may_alias));
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
};

// One stage of a transposition: of rows i and i + Step, numbers whose places differ by Step are exchanged.
template <class Set, int Step, int... Lane>
HEDDLE_INLINE void exchange(typename Set::Vector (&rows)[Set::kLanes], std::integer_sequence<int, Lane...>) {
  for (int i = 0; i < Set::kLanes; ++i) {
    if (i & Step) continue;
    const typename Set::Vector upper = rows[i], lower = rows[i + Step];
    rows[i] = __builtin_shufflevector(upper, lower, (Lane & Step ? Lane - Step + Set::kLanes : Lane)...);
    rows[i + Step] =
        __builtin_shufflevector(upper, lower, (Lane & Step ? Lane + Set::kLanes : Lane + Step)...);
  }
}

// rows[i][j] becomes rows[j][i].
template <class Set>
HEDDLE_INLINE void transpose_registers(typename Set::Vector (&rows)[Set::kLanes]) {
  constexpr std::make_integer_sequence<int, Set::kLanes> lanes;
  exchange<Set, 1>(rows, lanes);
  exchange<Set, 2>(rows, lanes);
  if constexpr (Set::kLanes > 4) exchange<Set, 4>(rows, lanes);
  if constexpr (Set::kLanes > 8) exchange<Set, 8>(rows, lanes);
}

// A product's work beside each step along its depth: none.
struct Nothing {
  static constexpr bool kFetchesLines = false;
  HEDDLE_INLINE void operator()(int64_t) const {}
};

// The lines of a Fetch.
class FetchRows {
 public:
  static constexpr bool kFetchesLines = true;  // in steps of its own, not at each one
  HEDDLE_INLINE explicit FetchRows(const Fetch& fetch) : fetch_(fetch), in_row_(fetch.in_row) {}

  HEDDLE_INLINE int64_t lines() const { return fetch_.lines; }
  HEDDLE_INLINE void operator()(int64_t) {
    __builtin_prefetch(fetch_.address, 0, 2);
    fetch_.address += kLine;
    --fetch_.lines;
    if (--in_row_ == 0) fetch_.address += fetch_.skip, in_row_ = fetch_.in_row;
  }

 private:
  Fetch fetch_;
  int64_t in_row_;
};

template <class Set, int Rows, int Columns, class Number>
HEDDLE_INLINE void add_step(typename Set::Vector (&sums)[Rows][Columns], const Operands<Number>& operands,
                            int64_t k) {
  const Number *a = operands.a + k * operands.a_step, *b = operands.b + k * operands.b_row;
  for (int row = 0; row < Rows; ++row) {
    const Number factor = a[row * operands.a_row];
    for (int column = 0; column < Columns; ++column)
      add_product<Set>(sums[row][column], factor, vector_at<Set>(b + column * Set::kLanes));
  }
}

// c [Rows, Columns * kLanes] (+)= a b over `depth`, in registers. Fetches are a step or two apart: requests
// side by side would wait for memory, and the product with them.
template <class Set, int Rows, int Columns, bool Adds, class Number, class Beside>
HEDDLE_INLINE void product_in_registers(const Operands<Number>& operands, int64_t depth, Beside& beside) {
  typename Set::Vector sums[Rows][Columns];
  for (int row = 0; row < Rows; ++row)
    for (int column = 0; column < Columns; ++column)
      sums[row][column] = Adds ? vector_at<Set>(operands.c + row * operands.c_row + column * Set::kLanes)
                               : typename Set::Vector{};
  int64_t k = 0;
  if constexpr (Beside::kFetchesLines) {
    const int64_t lines = beside.lines() < depth ? beside.lines() : depth;
    const int64_t apart = 2 * lines <= depth ? 2 : 1;
    for (const int64_t end = lines * apart; k < end;) {
      beside(k);
      add_step<Set, Rows, Columns>(sums, operands, k++);
      if (apart == 2) add_step<Set, Rows, Columns>(sums, operands, k++);
    }
  }
  for (; k < depth; ++k) {
    if constexpr (!Beside::kFetchesLines) beside(k);
    add_step<Set, Rows, Columns>(sums, operands, k);
  }
  for (int row = 0; row < Rows; ++row)
    for (int column = 0; column < Columns; ++column)
      vector_at<Set>(operands.c + row * operands.c_row + column * Set::kLanes) = sums[row][column];
}

// c [Rows, columns] (+)= a b; columns: a multiple of kLanes.
template <class Set, int Rows, bool Adds, class Number, class Beside>
HEDDLE_INLINE void product_of_rows(Operands<Number> operands, int64_t columns, int64_t depth, Beside beside) {
  const auto pass = [&operands](int64_t done) {
    operands.b += done;
    operands.c += done;
  };
  constexpr int64_t kWide = Set::kColumns * Set::kLanes, kHalf = kWide / 2;
  for (; columns >= kWide; columns -= kWide, pass(kWide))
    product_in_registers<Set, Rows, Set::kColumns, Adds>(operands, depth, beside);
  if constexpr (Set::kColumns == 4)
    if (columns == 3 * Set::kLanes) return product_in_registers<Set, Rows, 3, Adds>(operands, depth, beside);
  for (; columns >= kHalf; columns -= kHalf, pass(kHalf))
    product_in_registers<Set, Rows, Set::kColumns / 2, Adds>(operands, depth, beside);
  for (; columns > 0; columns -= Set::kLanes, pass(Set::kLanes))
    product_in_registers<Set, Rows, 1, Adds>(operands, depth, beside);
}

// Computes the product for 1 to kTileRows rows.
template <class Set, bool Adds, class Number, class Beside = Nothing>
HEDDLE_INLINE void product(const Operands<Number>& operands, int64_t rows, int64_t columns, int64_t depth,
                           const Beside& beside = {}) {
  static_assert(kTileRows == 6);
  switch (rows) {
    case 6:
      return product_of_rows<Set, 6, Adds>(operands, columns, depth, beside);
    case 5:
      return product_of_rows<Set, 5, Adds>(operands, columns, depth, beside);
    case 4:
      return product_of_rows<Set, 4, Adds>(operands, columns, depth, beside);
    case 3:
      return product_of_rows<Set, 3, Adds>(operands, columns, depth, beside);
    case 2:
      return product_of_rows<Set, 2, Adds>(operands, columns, depth, beside);
    default:
      return product_of_rows<Set, 1, Adds>(operands, columns, depth, beside);
  }
}

}  // namespace heddle::model::tile
