// One step of blocked attention on the CPU: a few queries of one head against one block of keys, or all keys
// that they see, in the widest registers that the processor has.
#pragma once

#include <cstdint>
#include <span>

#include "heddle/base/export.h"

namespace heddle::model {

constexpr int64_t kTileRows = 6;     // queries of a tile
constexpr int64_t kBlockKeys = 64;   // keys of a block
constexpr int64_t kPadding = 16;     // rows of packed matrices are multiples of it
constexpr int64_t kWholeKeys = 512;  // most keys of a WholeTile
static_assert(kWholeKeys % kBlockKeys == 0);

// The keys that a query sees: [begin, end), none where they are equal.
struct KeyRange {
  int32_t begin, end;
};

constexpr int64_t kLine = 64;  // bytes of a line of the cache

// Bytes that a product brings into the cache, a line for each step of its depth, while it computes: fetches
// side by side would wait for each other.
struct Fetch {
  const char* address = nullptr;
  int64_t lines = 0;
  int64_t in_row = 0, skip = 0;  // lines of a row; bytes from the end of a row to the next row
};

template <class Number>
struct Tile {
  int64_t rows = 0;      // 1 to kTileRows
  const KeyRange* seen;  // [rows], from the first key of the tile on
  int64_t head_dim, value_dim;
  const Number* queries;         // [rows, query_row]
  int64_t query_row;             // from one row to the next
  const Number* keys_by_column;  // [head_dim, kBlockKeys], scaled; in a WholeTile such blocks side by side
  Number cap;                    // of scores; 0: none
  Fetch fetch;                   // with the product of scores
};

// out, largest and totals are the state of a softmax whose keys come block by block (Milakov and Gimelshein
// 2018): out [rows, out_row] is the sum of values by weights, not yet divided by the totals.
template <class Number>
struct AttendTile : Tile<Number> {
  const Number* values;  // [kBlockKeys, value_width]
  int64_t value_width;
  Number *out, *largest, *totals;
  int64_t out_row;
  Number* scores;  // scratch [kTileRows, kBlockKeys]
};

// All keys that the queries see, in blocks side by side: out [rows, out_row] is their attention, 0 for a
// query that sees nothing.
template <class Number>
struct WholeTile : Tile<Number> {
  const Number* values;  // [keys, value_width]
  int64_t value_width;
  Number *out, *log_sums;
  int64_t out_row;
  Number* scores;      // scratch [kTileRows, kWholeKeys]
  Fetch second_fetch;  // with the product of values
};

// From the queries' log-sums and along = sum of d_out * out. Gives the weights and the gradient of the scores
// [rows, kBlockKeys], 0 where a query does not see; sets d_queries [rows, d_query_row], or adds to them.
template <class Number>
struct GradientTile : Tile<Number> {
  const Number *d_out, *values_by_column;  // [rows, d_out_row], [value_dim, kBlockKeys]
  const Number* keys;                      // [kBlockKeys, key_width], scaled
  int64_t d_out_row, key_width, d_query_row;
  bool adds;  // to d_queries; else they are set
  const Number *log_sums, *along;
  Number *weights, *gradients, *d_queries;
  Fetch second_fetch;  // with the product of d_out
};

// c [rows, columns] += a^T b over `depth`; a [depth, rows] with rows kBlockKeys apart, b [depth, columns]
// with rows b_row apart.
template <class Number>
struct KeyProduct {
  const Number *a, *b;
  int64_t b_row;
  Number* c;
  int64_t rows, columns, depth;
};

template <class Number>
struct TileKernels {
  void (*attend)(const AttendTile<Number>& tile);
  void (*attend_whole)(const WholeTile<Number>& tile);
  void (*gradients)(const GradientTile<Number>& tile);
  void (*add_product)(const KeyProduct<Number>& product);
};

// Returns the float kernels that this processor runs, widest registers first.
HEDDLE_API std::span<const TileKernels<float>* const> supported_tile_kernels();

// The widest of them; of double, the same everywhere.
template <class Number>
const TileKernels<Number>& tile_kernels();

}  // namespace heddle::model
