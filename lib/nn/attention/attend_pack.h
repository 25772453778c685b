// What the forward and the backward of blocked attention share: matrices of one head laid side by side for
// the products, and the tiles of a block of queries.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <c10/util/Half.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "heddle/nn/attention_layout.h"
#include "lib/nn/cpu/attend_tile_cpu.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::model::pack {

inline int64_t padded(int64_t count, int64_t to = kPadding) {
  return (count + to - 1) / to * to;
}

// Throws Error{internal} where the kernel does not read the inputs or their sizes do not fit.
void check(const BlockedInputs& in, const BlockedShape& shape);

// Calls `body` with a number of the dtype's type.
template <class Body>
void run_stored(at::ScalarType dtype, const Body& body) {
  if (dtype == at::kHalf) return body(c10::Half{});
  run_typed(dtype, body);
}

// Numbers for the time of one call, aligned for the widest registers, counted by the allocator.
template <class Number>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : tensor_(at::empty({count}, std::is_same_v<Number, double> ? at::kDouble : at::kFloat)),
        data_(tensor_.mutable_data_ptr<Number>()) {}
  Number* at(int64_t place) const { return data_ + place; }
  void clear(int64_t count) const { std::fill_n(data_, count, Number{}); }

 private:
  at::Tensor tensor_;
  Number* data_;
};

// The columns of one head in a matrix with a row per token.
template <class Stored>
struct HeadColumns {
  Stored* data;
  int64_t row, width;  // from one row to the next; columns of the head
  HeadColumns from(int64_t first) const { return {data + first * row, row, width}; }
};

template <class Stored>
HeadColumns<const Stored> columns_of(const at::Tensor& x, int64_t head, int64_t width) {
  return {x.const_data_ptr<Stored>() + head * width, x.stride(0), width};
}
template <class Stored>
HeadColumns<Stored> mutable_columns_of(const at::Tensor& x, int64_t head, int64_t width) {
  return {x.mutable_data_ptr<Stored>() + head * width, x.stride(0), width};
}

// kPadding numbers; so many that the compiler uses registers of several.
template <class Stored, class Number>
inline void scaled(const Stored* __restrict__ from, Number scale, Number* __restrict__ to) {
  for (int64_t i = 0; i < kPadding; ++i) to[i] = scale * static_cast<Number>(from[i]);
}

inline constexpr int64_t kAhead = 8;  // rows that are fetched into the cache early

// Rows [first, first + count), each padded with zeros.
template <class Stored, class Number>
void rows(const HeadColumns<const Stored>& from, int64_t first, int64_t count, Number scale, Number* to) {
  const int64_t width = padded(from.width), whole = from.width / kPadding * kPadding;
  for (int64_t row = 0; row < count; ++row, to += width) {
    const Stored* const numbers = from.data + (first + row) * from.row;
    for (int64_t i = 0; i < from.width; i += 64 / static_cast<int64_t>(sizeof(Stored)))
      __builtin_prefetch(numbers + kAhead * from.row + i);  // rows of a head lie apart
    for (int64_t i = 0; i < whole; i += kPadding) scaled(numbers + i, scale, to + i);
    for (int64_t i = whole; i < from.width; ++i) to[i] = scale * static_cast<Number>(numbers[i]);
    for (int64_t i = from.width; i < width; ++i) to[i] = 0;
  }
}

// kPadding rows of four columns, transposed.
template <class Stored, class Number>
inline void four_columns(const Stored* from, int64_t row, Number* to) {
  for (int64_t part = 0; part < kPadding; part += 4)
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t lane = 0; lane < 4; ++lane)
        to[i * kBlockKeys + part + lane] = static_cast<Number>(from[(part + lane) * row + i]);
}
inline void four_columns(const float* from, int64_t row, float* to) {
  typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
  typedef int32_t Places __attribute__((vector_size(16)));
  const auto at = [](const float* x) { return *reinterpret_cast<const Four*>(x); };
  for (int64_t part = 0; part < kPadding; part += 4, from += 4 * row, to += 4) {
    const Four a = at(from), b = at(from + row), c = at(from + 2 * row), d = at(from + 3 * row);
    const Four ab = __builtin_shuffle(a, b, Places{0, 4, 1, 5}),
               cd = __builtin_shuffle(c, d, Places{0, 4, 1, 5});
    const Four up = __builtin_shuffle(a, b, Places{2, 6, 3, 7}),
               of = __builtin_shuffle(c, d, Places{2, 6, 3, 7});
    const Four columns[] = {
        __builtin_shuffle(ab, cd, Places{0, 1, 4, 5}), __builtin_shuffle(ab, cd, Places{2, 3, 6, 7}),
        __builtin_shuffle(up, of, Places{0, 1, 4, 5}), __builtin_shuffle(up, of, Places{2, 3, 6, 7})};
    for (int64_t i = 0; i < 4; ++i) *reinterpret_cast<Four*>(to + i * kBlockKeys) = columns[i];
  }
}

// The first rows in blocks of kBlockKeys: [block, width, kBlockKeys]; rows of the last are padded with zeros
// to a multiple of kPadding, and the rest is left as it is.
template <class Stored, class Number>
void blocks_by_column(const HeadColumns<const Stored>& from, int64_t count, Number* to) {
  for (int64_t first = 0; first < count; first += kPadding) {
    const int64_t rows = std::min(count - first, kPadding), part = first % kBlockKeys;
    const Stored* const numbers = from.data + first * from.row;
    Number* const block = to + (first - part) * from.width + part;
    const int64_t whole = rows == kPadding ? from.width / 4 * 4 : 0;
    for (int64_t i = 0; i < whole; i += 4) four_columns(numbers + i, from.row, block + i * kBlockKeys);
    for (int64_t i = whole; i < from.width; ++i) {
      Number* const column = block + i * kBlockKeys;
      for (int64_t row = 0; row < kPadding; ++row)
        column[row] = row < rows ? static_cast<Number>(numbers[row * from.row + i]) : Number{};
    }
  }
}

// Some queries of a block that are computed together: rows [row, row + count) of the block, which see keys
// within [begin, end).
struct TileRows {
  int64_t row, count;
  int32_t begin, end;
};

// A block of queries, its tiles, and the keys that one of them sees.
struct QueryBlock {
  int64_t first = 0, count = 0;
  std::vector<TileRows> tiles;
  int32_t begin = 0, end = 0;
};

// Neighbouring queries, and keys that no other queries see: documents, where ranges are those of documents. A
// segment is computed by itself, so its scratch stays in the cache and its bits do not depend on others.
struct Segment {
  int64_t first = 0, count = 0;  // queries
  int64_t key = 0, keys = 0;     // keys [key, key + keys)
  std::vector<QueryBlock> blocks{};
  int64_t products = 0;  // about as many tiles of queries by blocks of keys
};

// All queries and all keys, in as many segments as there are. Queries that see no common stretch of keys are
// in different tiles. block: queries of a block.
std::vector<Segment> segments_of(const KeyRange* seen, int64_t queries, int64_t keys, int64_t block);

// The most queries and the most keys of a segment.
Segment largest_of(const std::vector<Segment>& segments);

// What the queries of a tile see of a block of keys that begins at `key`. False: nothing.
bool clip(const KeyRange* seen, const TileRows& rows, int64_t key, KeyRange* clipped);

}  // namespace heddle::model::pack
