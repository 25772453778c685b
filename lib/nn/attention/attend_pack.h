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
  void clear() const { std::fill_n(data_, tensor_.numel(), Number{}); }

 private:
  at::Tensor tensor_;
  Number* data_;
};

// The columns of one head in a matrix with a row per token.
template <class Stored>
struct HeadColumns {
  Stored* data;
  int64_t row, width;  // from one row to the next; columns of the head
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

// Rows [first, first + count), each padded with zeros.
template <class Stored, class Number>
void rows(const HeadColumns<const Stored>& from, int64_t first, int64_t count, Number scale, Number* to) {
  const int64_t width = padded(from.width), whole = from.width / kPadding * kPadding;
  for (int64_t row = 0; row < count; ++row, to += width) {
    const Stored* const numbers = from.data + (first + row) * from.row;
    for (int64_t i = 0; i < whole; i += kPadding) scaled(numbers + i, scale, to + i);
    for (int64_t i = whole; i < from.width; ++i) to[i] = scale * static_cast<Number>(numbers[i]);
    for (int64_t i = from.width; i < width; ++i) to[i] = 0;
  }
}

// All rows in blocks of kBlockKeys: [block, width, kBlockKeys], the last padded with zeros.
template <class Stored, class Number>
void blocks_by_column(const HeadColumns<const Stored>& from, int64_t count, Number* to) {
  constexpr int64_t kAtOnce = 16;
  for (int64_t block = 0; block < count; block += kBlockKeys, to += from.width * kBlockKeys)
    for (int64_t part = 0; part < kBlockKeys; part += kAtOnce) {
      const int64_t first = block + part, rows = std::clamp<int64_t>(count - first, 0, kAtOnce);
      const Stored* const numbers = from.data + first * from.row;
      for (int64_t i = 0; i < from.width; ++i) {
        Number* const column = to + i * kBlockKeys + part;
        if (rows == kAtOnce) {
          for (int64_t row = 0; row < kAtOnce; ++row)
            column[row] = static_cast<Number>(numbers[row * from.row + i]);
          continue;
        }
        for (int64_t row = 0; row < kAtOnce; ++row)
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

// Queries that see no common stretch of keys are in different tiles, so that no tile reaches from one
// document into the next.
std::vector<QueryBlock> query_blocks(const KeyRange* seen, int64_t queries, int64_t block);

// What the queries of a tile see of a block of keys that begins at `key`. False: nothing.
bool clip(const KeyRange* seen, const TileRows& rows, int64_t key, KeyRange* clipped);

}  // namespace heddle::model::pack
