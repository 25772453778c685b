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

// Scratch of one thread.
struct Blocks {
  alignas(64) float a[kRows * kDepth];
  alignas(64) float b[kColumns * kDepth];
  alignas(64) float c[kRows * kNarrowColumns];  // of float32: one tile of it
};

// to[i, j] = from[j, i]: a square with the numbers of a register on each side. Asks for the square after it.
template <class Set>
HEDDLE_INLINE void transpose(const float* from, int64_t from_row, float* to, int64_t to_row) {
  typename Set::Vector rows[Set::kLanes];
  for (int i = 0; i < Set::kLanes; ++i) {
    rows[i] = tile::vector_at<Set>(from + i * from_row);
    __builtin_prefetch(from + (i + Set::kLanes) * from_row);
  }
  tile::transpose_registers<Set>(rows);
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

// True if a is transposed and a tile would touch more lines than the first cache keeps.
HEDDLE_INLINE bool packs_rows(const PackedProduct<float>& product) {
  return product.a.column != 1 && product.depth > 128;
}

// Tiles [depth, kTileRows] of a transposed matrix.
HEDDLE_INLINE void pack_rows(const MatrixView<float>& a, int64_t rows, int64_t depth, float* to) {
  constexpr int64_t kSteps = 16;  // lines of so many columns of a stay in the first cache
  for (int64_t k = 0; k < depth; k += kSteps)
    for (int64_t row = 0; row < rows; row += kTileRows) {
      const auto count = static_cast<size_t>(std::min<int64_t>(kTileRows, rows - row));
      float* const tile = to + row * depth;
      for (int64_t step = k; step < std::min(depth, k + kSteps); ++step)
        if (count == kTileRows)
          std::memcpy(tile + step * kTileRows, a.at(row, step), kTileRows * sizeof(float));
        else
          std::memcpy(tile + step * kTileRows, a.at(row, step), count * sizeof(float));
    }
}

// Neighbouring cache lines that are asked for before they are needed: one with each step of a tile along its
// depth, because many at once would wait for memory, and the tile with them.
struct Lines {
  const float* data = nullptr;
  int64_t left = 0;

  // At most a block: more would not stay in the cache.
  static HEDDLE_INLINE Lines of(const Stretch<float>& stretch) {
    return {stretch.data, (std::min(stretch.count, kColumns * kDepth) + 15) / 16};
  }
  HEDDLE_INLINE Lines take(int64_t count) {
    const Lines share{data, std::min(count, left)};
    data += 16 * share.left;
    left -= share.left;
    return share;
  }
};

// Prefetches beside a tile: the rows after it, into the first cache, and then of b, into the second.
struct Ahead {
  Lines near, far;
  static constexpr bool kFetchesLines = false;
  bool any() const { return near.left + far.left > 0; }
  HEDDLE_INLINE void operator()(int64_t step) const {
    if (step < near.left)
      __builtin_prefetch(near.data + 16 * step, 0, 3);
    else if (step -= near.left; step < far.left)
      __builtin_prefetch(far.data + 16 * step, 0, 2);
  }
};

// c [rows, columns] (+)= a b with at most kTileRows rows, a panel's columns and a multiple of kLanes: a
// function of its own, because the compiler keeps sums in memory where it inlines this into the loops below.
using TileProduct = void (*)(const tile::Operands<float>& operands, int64_t rows, int64_t columns,
                             int64_t depth);
using TileProductAhead = void (*)(const tile::Operands<float>& operands, int64_t rows, int64_t columns,
                                  int64_t depth, const Ahead& ahead);

// Products of one instruction set.
struct TileProducts {
  TileProduct set, add;
  TileProductAhead set_ahead, add_ahead;

  void run(bool adds, const tile::Operands<float>& operands, int64_t rows, int64_t columns, int64_t depth,
           const Ahead& ahead) const {
    if (ahead.any()) return (adds ? add_ahead : set_ahead)(operands, rows, columns, depth, ahead);
    (adds ? add : set)(operands, rows, columns, depth);
  }
};

// One tile of c with any columns of a panel.
template <class Set, const TileProducts& Tiles>
HEDDLE_INLINE void multiply_tile(tile::Operands<float> operands, int64_t rows, int64_t columns, int64_t depth,
                                 bool adds, float* scratch, const Ahead& ahead) {
  constexpr int64_t kWidth = Set::kColumns * Set::kLanes;
  const int64_t rest = columns % Set::kLanes;
  if (rest == 0) return Tiles.run(adds, operands, rows, columns, depth, ahead);
  float* const c = operands.c;
  const int64_t c_row = operands.c_row;
  operands.c = scratch;
  operands.c_row = kWidth;
  Tiles.run(false, operands, rows, columns - rest + Set::kLanes, depth, ahead);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      c[i * c_row + j] = (adds ? c[i * c_row + j] : 0.0f) + scratch[i * kWidth + j];
}

// A part of b that is asked for stretch by stretch: where it is not contiguous.
struct Stretches {
  const float* data = nullptr;             // null: none
  int64_t step = 0, length = 0, left = 0;  // numbers between two stretches and in one; stretches

  static HEDDLE_INLINE Stretches of(const MatrixView<float>& b, int64_t columns, int64_t depth) {
    return b.column == 1 ? Stretches{b.data, b.row, columns, depth}
                         : Stretches{b.data, b.column, depth, columns};
  }
  HEDDLE_INLINE void ask(int64_t stretches) {
    if (data == nullptr) return;
    for (const int64_t rest = std::max<int64_t>(0, left - stretches); left > rest; --left, data += step)
      for (int64_t i = 0; i < length; i += 16) __builtin_prefetch(data + i, 0, 2);
  }
};

// The begin of a panel, its place in blocks.b (one place for all if no later rows need it), and the panel
// after it: of this block or of the next product.
struct Panel {
  int64_t first, columns, place;
  Stretches next;
};

// The remaining work of a block: tiles of all its panels, and the lines that are read after it.
struct Rest {
  int64_t tiles;
  Lines first, second;

  // For the next tile: a share of one of them.
  HEDDLE_INLINE Lines take() {
    const int64_t share = (first.left + second.left + tiles - 1) / tiles;
    --tiles;
    return first.left > 0 ? first.take(share) : second.take(share);
  }
};

HEDDLE_INLINE int64_t tiles_of(int64_t rows) {
  return (rows + kTileRows - 1) / kTileRows;
}

// The rows of one block of a times one packed panel of b.
template <class Set, const TileProducts& Tiles>
HEDDLE_INLINE void rows_of_panel(const PackedProduct<float>& product, int64_t row, int64_t count, Panel panel,
                                 Rest& rest, Blocks& blocks) {
  constexpr int64_t kWidth = Set::kColumns * Set::kLanes;
  const bool packs = packs_rows(product), whole = product.a.column == 1 && product.a.row == product.depth;
  const int64_t each = (panel.next.left * kTileRows + count - 1) / count;
  for (int64_t i = 0; i < count; i += kTileRows) {
    const float* const a = packs ? blocks.a + i * product.depth : product.a.at(row + i, 0);
    panel.next.ask(each);
    Ahead ahead;
    if (whole && panel.first == 0)  // later panels find these rows in the cache
      ahead.near = Lines::of({product.a.at(row + i + kTileRows, 0), kTileRows * product.depth});
    ahead.far = rest.take();
    multiply_tile<Set, Tiles>(
        tile::Operands<float>{a, packs ? 1 : product.a.row, packs ? kTileRows : product.a.column,
                              blocks.b + panel.place, kWidth,
                              product.c + (row + i) * product.c_row + panel.first, product.c_row},
        std::min<int64_t>(kTileRows, count - i), panel.columns, product.depth, product.adds, blocks.c, ahead);
  }
}

// c (+)= a b where b fits into a block: its panels are packed when the first rows need them. after: where the
// next block of b begins; null: none.
template <class Set, const TileProducts& Tiles>
HEDDLE_INLINE void multiply_block(const PackedProduct<float>& product, const float* after, Blocks& blocks) {
  constexpr int64_t kWidth = Set::kColumns * Set::kLanes;
  Rest rest{tiles_of(product.rows) * ((product.columns + kWidth - 1) / kWidth), Lines::of(product.next[0]),
            Lines::of(product.next[1])};
  for (int64_t row = 0; row < product.rows; row += kRows) {
    const int64_t count = std::min(kRows, product.rows - row);
    if (packs_rows(product))
      pack_rows({product.a.at(row, 0), product.a.row, product.a.column}, count, product.depth, blocks.a);
    for (int64_t j = 0; j < product.columns; j += kWidth) {
      const auto view = [&](int64_t column) {
        return MatrixView<float>{product.b.at(0, column), product.b.row, product.b.column};
      };
      Panel panel{j, std::min(kWidth, product.columns - j), product.rows > kRows ? j * product.depth : 0, {}};
      if (row == 0) {
        pack_panel<Set, kWidth>(view(j), panel.columns, product.depth, blocks.b + panel.place);
        if (const int64_t next = j + kWidth; next < product.columns && !product.asked)
          panel.next = Stretches::of(view(next), std::min(kWidth, product.columns - next), product.depth);
        else if (next >= product.columns && after != nullptr)
          panel.next = Stretches::of({after, product.b.row, product.b.column},
                                     std::min(kWidth, product.columns), product.depth);
      }
      rows_of_panel<Set, Tiles>(product, row, count, panel, rest, blocks);
    }
  }
}

template <class Set, const TileProducts& Tiles>
HEDDLE_INLINE void multiply_packed(const PackedProduct<float>& product, Blocks& blocks) {
  static_assert(kColumns % (Set::kColumns * Set::kLanes) == 0 && kRows % kTileRows == 0 &&
                Set::kColumns * Set::kLanes <= 64);
  for (int64_t left = 0; left < product.columns; left += kColumns)
    for (int64_t k = 0; k < product.depth; k += kDepth) {
      PackedProduct<float> block = product;
      block.columns = std::min(kColumns, product.columns - left);
      block.depth = std::min(kDepth, product.depth - k);
      block.a.data = product.a.at(0, k);
      block.b.data = product.b.at(k, left);
      block.c = product.c + left;
      block.adds = product.adds || k > 0;
      const float* after = nullptr;
      if (k + kDepth < product.depth)
        after = product.b.at(k + kDepth, left);
      else if (left + kColumns < product.columns)
        after = product.b.at(0, left + kColumns);
      if (after != nullptr) block.next[0] = block.next[1] = {};
      block.asked = product.asked && product.columns <= kColumns && product.depth <= kDepth;
      multiply_block<Set, Tiles>(block, after, blocks);
    }
}

}  // namespace heddle::model::packed
