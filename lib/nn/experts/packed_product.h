// The loops of a product by packed blocks. Included by packed_product_cpu.cpp alone, which compiles them for
// several generations of x86-64.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "lib/nn/attention/tile_products.h"
#include "lib/nn/cpu/packed_product_cpu.h"

namespace heddle::model::packed {

// A block of b and one of a lie in the second-level cache together, a panel of b in the first.
constexpr int64_t kDepth = 256, kColumns = 512, kNarrowColumns = 256, kRows = 192;

// Of one thread.
struct Blocks {
  alignas(64) float a[kRows * kDepth];
  alignas(64) float b[kColumns * kDepth];
  alignas(64) float c[kRows * kNarrowColumns];  // of float32: one tile of it
};

// Exchanges two blocks of a transposition: lanes with the bit Step of a row without it, and the opposite.
template <class Set, int Step>
HEDDLE_INLINE void exchange(typename Set::Vector (&rows)[Set::kLanes]) {
  typename Set::Wholes low, high;
  for (int lane = 0; lane < Set::kLanes; ++lane) {
    low[lane] = lane & Step ? lane - Step + Set::kLanes : lane;
    high[lane] = lane & Step ? lane + Set::kLanes : lane + Step;
  }
  for (int i = 0; i < Set::kLanes; ++i) {
    if (i & Step) continue;
    const typename Set::Vector upper = rows[i], lower = rows[i + Step];
    rows[i] = __builtin_shuffle(upper, lower, low);
    rows[i + Step] = __builtin_shuffle(upper, lower, high);
  }
}

// to[i, j] = from[j, i]: a square of as many numbers as a register has lanes. Asks for the square after it.
template <class Set>
HEDDLE_INLINE void transpose(const float* from, int64_t from_row, float* to, int64_t to_row) {
  typename Set::Vector rows[Set::kLanes];
  for (int i = 0; i < Set::kLanes; ++i) {
    rows[i] = tile::vector_at<Set>(from + i * from_row);
    __builtin_prefetch(from + (i + Set::kLanes) * from_row);
  }
  exchange<Set, 1>(rows);
  exchange<Set, 2>(rows);
  if constexpr (Set::kLanes > 4) exchange<Set, 4>(rows);
  if constexpr (Set::kLanes > 8) exchange<Set, 8>(rows);
  for (int i = 0; i < Set::kLanes; ++i) tile::vector_at<Set>(to + i * to_row) = rows[i];
}

// A panel [depth, Width] of b, zero beyond its columns.
template <class Set, int Width>
HEDDLE_INLINE void pack_panel(const MatrixView<float>& b, int64_t columns, int64_t depth, float* to) {
  if (columns < Width) std::memset(to, 0, static_cast<size_t>(depth * Width) * sizeof(float));
  if (b.column == 1) {
    for (int64_t k = 0; k < depth; ++k, to += Width) {
      const float* const from = b.at(k, 0);
      for (int64_t j = 0; j < Width; j += 16) __builtin_prefetch(from + 8 * b.row + j);
      if (columns == Width)
        for (int64_t j = 0; j < Width; ++j) to[j] = from[j];
      else
        for (int64_t j = 0; j < columns; ++j) to[j] = from[j];
    }
    return;
  }
  const int64_t deep = depth - depth % Set::kLanes, wide = columns - columns % Set::kLanes;
  for (int64_t j = 0; j < wide; j += Set::kLanes)
    for (int64_t k = 0; k < deep; k += Set::kLanes)
      transpose<Set>(b.at(k, j), b.column, to + k * Width + j, Width);
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t k = j < wide ? deep : 0; k < depth; ++k) to[k * Width + j] = *b.at(k, j);
}

// Tiles [depth, kTileRows] of a matrix whose columns lie contiguously.
HEDDLE_INLINE void pack_rows(const MatrixView<float>& a, int64_t rows, int64_t depth, float* to) {
  for (int64_t row = 0; row < rows; row += kTileRows, to += depth * kTileRows) {
    const int64_t count = std::min<int64_t>(kTileRows, rows - row);
    for (int64_t k = 0; k < depth; ++k) {
      const float* const from = a.at(row, k);
      for (int64_t i = 0; i < count; ++i) to[k * kTileRows + i] = from[i];
    }
  }
}

// One tile of c, [rows, columns] with at most kTileRows rows and a panel's columns.
template <class Set, bool Adds>
HEDDLE_INLINE void tile_of(tile::Operands<float> of, int64_t rows, int64_t columns, int64_t depth,
                           float* scratch) {
  constexpr int64_t kWidth = Set::kColumns * Set::kLanes;
  const int64_t rest = columns % Set::kLanes;
  if (rest == 0) return tile::product<Set, Adds>(of, rows, columns, depth);
  float* const c = of.c;
  const int64_t c_row = of.c_row;
  of.c = scratch;
  of.c_row = kWidth;
  tile::product<Set, false>(of, rows, columns - rest + Set::kLanes, depth);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      c[i * c_row + j] = (Adds ? c[i * c_row + j] : 0.0f) + scratch[i * kWidth + j];
}

// The rows of one block of a times the packed block of b.
template <class Set, bool Adds>
HEDDLE_INLINE void rows_of_block(const PackedProduct<float>& of, int64_t row, int64_t count, int64_t columns,
                                 int64_t depth, Blocks& blocks) {
  constexpr int64_t kWidth = Set::kColumns * Set::kLanes;
  const bool packs = of.a.column != 1;
  if (packs) pack_rows({of.a.at(row, 0), of.a.row, of.a.column}, count, depth, blocks.a);
  for (int64_t j = 0; j < columns; j += kWidth)
    for (int64_t i = 0; i < count; i += kTileRows) {
      const float* const a = packs ? blocks.a + i * depth : of.a.at(row + i, 0);
      tile_of<Set, Adds>(
          tile::Operands<float>{a, packs ? 1 : of.a.row, packs ? kTileRows : 1, blocks.b + j * depth, kWidth,
                                of.c + (row + i) * of.c_row + j, of.c_row},
          std::min<int64_t>(kTileRows, count - i), std::min(kWidth, columns - j), depth, blocks.c);
    }
}

template <class Set>
HEDDLE_INLINE void product_of(const PackedProduct<float>& of, Blocks& blocks) {
  constexpr int64_t kWidth = Set::kColumns * Set::kLanes;
  static_assert(kColumns % kWidth == 0 && kRows % kTileRows == 0 && kWidth <= 64);
  for (int64_t left = 0; left < of.columns; left += kColumns) {
    const int64_t columns = std::min(kColumns, of.columns - left);
    for (int64_t k = 0; k < of.depth; k += kDepth) {
      const int64_t depth = std::min(kDepth, of.depth - k);
      for (int64_t j = 0; j < columns; j += kWidth)
        pack_panel<Set, kWidth>({of.b.at(k, left + j), of.b.row, of.b.column}, std::min(kWidth, columns - j),
                                depth, blocks.b + j * depth);
      PackedProduct<float> block = of;
      block.a.data = of.a.at(0, k);
      block.c = of.c + left;
      for (int64_t row = 0; row < of.rows; row += kRows) {
        const int64_t count = std::min(kRows, of.rows - row);
        if (k == 0)
          rows_of_block<Set, false>(block, row, count, columns, depth, blocks);
        else
          rows_of_block<Set, true>(block, row, count, columns, depth, blocks);
      }
    }
  }
}

}  // namespace heddle::model::packed
