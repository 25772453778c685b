// The loops of a packed product of bfloat16: a pair of numbers along the depth takes the place of one
// float32, and one instruction adds both products of two pairs to a sum in float32. Included by
// packed_product_cpu.cpp alone.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "lib/nn/experts/packed_product.h"

namespace heddle::model {
namespace tile {

// Registers of float32 whose factors are pairs of bfloat16.
struct Avx512Pairs : Avx512 {};

template <>
HEDDLE_INLINE void add_product<Avx512Pairs>(Avx512::Vector& sum, float pair, const Avx512::Vector& pairs) {
  const Avx512::Wholes everywhere = Avx512::Wholes{} + std::bit_cast<uint32_t>(pair);
  Avx512::Vector own = sum;  // an asm on the reference would keep the sums in memory
  asm("vdpbf16ps %2, %1, %0" : "+v"(own) : "v"(everywhere), "v"(pairs));
  sum = own;
}

}  // namespace tile

namespace packed {

using Narrow = c10::BFloat16;

HEDDLE_INLINE float pair_of(Narrow first, Narrow second) {
  return std::bit_cast<float>(static_cast<uint32_t>(first.x) | static_cast<uint32_t>(second.x) << 16);
}

// Pair k of a row whose numbers are `step` apart; 0 beyond its length.
HEDDLE_INLINE float pair_at(const Narrow* row, int64_t step, int64_t k, int64_t length) {
  const int64_t second = 2 * k + 1;
  return pair_of(row[2 * k * step], second < length ? row[second * step] : Narrow(0, Narrow::from_bits()));
}

// Packs every row: rows of pairs, as many numbers to a row as `pairs`.
HEDDLE_INLINE void pack_pairs_of_rows(const MatrixView<Narrow>& a, int64_t rows, int64_t depth, float* to) {
  const int64_t pairs = (depth + 1) / 2;
  for (int64_t i = 0; i < rows; ++i, to += pairs) {
    to[pairs - 1] = 0;
    std::memcpy(to, a.at(i, 0), static_cast<size_t>(depth) * sizeof(Narrow));
  }
}

// Tiles [pairs, kTileRows] of a transposed matrix.
HEDDLE_INLINE void pack_pairs_of_columns(const MatrixView<Narrow>& a, int64_t rows, int64_t depth,
                                         float* to) {
  const int64_t pairs = (depth + 1) / 2;
  for (int64_t row = 0; row < rows; row += kTileRows, to += pairs * kTileRows) {
    const int64_t count = std::min<int64_t>(kTileRows, rows - row);
    for (int64_t k = 0; k < pairs; ++k)
      for (int64_t i = 0; i < count; ++i)
        to[k * kTileRows + i] = pair_at(a.at(row + i, 0), a.column, k, depth);
  }
}

// Two rows of numbers as one of pairs.
HEDDLE_INLINE void interleave(const Narrow* first, const Narrow* second, int64_t count, float* to) {
  auto* const numbers = reinterpret_cast<Narrow*>(to);
  for (int64_t j = 0; j < count; ++j) {
    numbers[2 * j] = first[j];
    numbers[2 * j + 1] = second[j];
  }
}

// A panel [pairs, Width] of b, zero beyond its columns.
template <class Set, int Width>
HEDDLE_INLINE void pack_panel_of_pairs(const MatrixView<Narrow>& b, int64_t columns, int64_t depth,
                                       float* to) {
  const int64_t pairs = (depth + 1) / 2;
  if (columns < Width) std::memset(to, 0, static_cast<size_t>(pairs * Width) * sizeof(float));
  if (b.column == 1) {
    for (int64_t k = 0; k < depth / 2; ++k)
      if (columns == Width)
        interleave(b.at(2 * k, 0), b.at(2 * k + 1, 0), Width, to + k * Width);
      else
        interleave(b.at(2 * k, 0), b.at(2 * k + 1, 0), columns, to + k * Width);
    for (int64_t j = 0; depth % 2 == 1 && j < columns; ++j)
      to[(pairs - 1) * Width + j] = pair_at(b.at(0, j), b.row, pairs - 1, depth);
    return;
  }
  // Pairs lie contiguously in the columns, where a square of them is transposed as one of float32.
  const auto* const data = reinterpret_cast<const float*>(b.data);
  const bool whole = b.column % 2 == 0 && reinterpret_cast<uintptr_t>(data) % sizeof(float) == 0;
  const int64_t deep = whole ? depth / 2 - depth / 2 % Set::kLanes : 0,
                wide = columns - columns % Set::kLanes;
  for (int64_t j = 0; j < wide; j += Set::kLanes)
    for (int64_t k = 0; k < deep; k += Set::kLanes)
      transpose<Set>(data + k + j * (b.column / 2), b.column / 2, to + k * Width + j, Width);
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t k = j < wide ? deep : 0; k < pairs; ++k)
      to[k * Width + j] = pair_at(b.at(0, j), 1, k, depth);
}

// blocks.c [rows, kNarrowColumns] (+)= a block of a times one of b, over at most 2 kDepth numbers.
template <class Set, bool Adds>
HEDDLE_INLINE void multiply_block_of_pairs(const PackedProduct<Narrow>& product, Blocks& blocks) {
  constexpr int64_t kWidth = Set::kColumns * Set::kLanes;
  const bool turned = product.a.column != 1;
  const int64_t pairs = (product.depth + 1) / 2;
  if (turned)
    pack_pairs_of_columns(product.a, product.rows, product.depth, blocks.a);
  else
    pack_pairs_of_rows(product.a, product.rows, product.depth, blocks.a);
  for (int64_t j = 0; j < product.columns; j += kWidth) {
    const int64_t columns = std::min(kWidth, product.columns - j);
    pack_panel_of_pairs<Set, kWidth>({product.b.at(0, j), product.b.row, product.b.column}, columns,
                                     product.depth, blocks.b);
    for (int64_t i = 0; i < product.rows; i += kTileRows)
      tile::product<Set, Adds>(
          tile::Operands<float>{blocks.a + i * pairs, turned ? 1 : pairs, turned ? kTileRows : 1, blocks.b,
                                kWidth, blocks.c + i * kNarrowColumns + j, kNarrowColumns},
          std::min<int64_t>(kTileRows, product.rows - i),
          (columns + Set::kLanes - 1) / Set::kLanes * Set::kLanes, pairs);
  }
}

template <class Set>
HEDDLE_INLINE void multiply_packed(const PackedProduct<Narrow>& product, Blocks& blocks) {
  for (int64_t left = 0; left < product.columns; left += kNarrowColumns)
    for (int64_t row = 0; row < product.rows; row += kRows) {
      PackedProduct<Narrow> block = product;
      block.columns = std::min(kNarrowColumns, product.columns - left);
      block.rows = std::min(kRows, product.rows - row);
      for (int64_t k = 0; k < product.depth; k += 2 * kDepth) {
        block.depth = std::min(2 * kDepth, product.depth - k);
        block.a.data = product.a.at(row, k);
        block.b.data = product.b.at(k, left);
        if (k == 0)
          multiply_block_of_pairs<Set, false>(block, blocks);
        else
          multiply_block_of_pairs<Set, true>(block, blocks);
      }
      for (int64_t i = 0; i < block.rows; ++i)
        for (int64_t j = 0; j < block.columns; ++j)
          product.c[(row + i) * product.c_row + left + j] = blocks.c[i * kNarrowColumns + j];
    }
}

}  // namespace packed
}  // namespace heddle::model
