// Shared by the forward and the backward of blocked attention: matrices of one head laid side by side for
// the products, and the tiles of a block of queries.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <c10/core/ScalarType.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "heddle/nn/attention_layout.h"
#include "lib/nn/attention/attend_rows.h"
#include "lib/nn/cpu/attend_tile_cpu.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::model::pack {

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

// Rows that a product reads or adds to: packed ones, or those of a tensor.
template <class Number>
struct Rows {
  Number* data = nullptr;
  int64_t row = 0;  // from one to the next
  Number* at(int64_t place) const { return data + place * row; }
};

// Whether products use the rows of a segment's head in place: numbers are of the products' type, rows are
// whole registers, and the cache holds them: they are few, and not at multiples of a page, where they would
// share few of its sets.
template <class Number>
bool in_place(const at::Tensor& x, int64_t width, int64_t rows) {
  constexpr int64_t kMostRows = 512, kPage = 4096;
  return x.scalar_type() == c10::CppTypeToScalarType<Number>::value && width % kPadding == 0 &&
         rows <= kMostRows && x.stride(0) * x.element_size() % kPage != 0;
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

// Clips the ranges of a tile's queries to a block of keys that begins at `key`. False: they see none of it.
bool clip(const KeyRange* seen, const TileRows& rows, int64_t key, KeyRange* clipped);

}  // namespace heddle::model::pack
