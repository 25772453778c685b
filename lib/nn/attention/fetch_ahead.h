// Rows of tensors that are brought into the cache while tiles before them are computed.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "lib/nn/attention/attend_pack.h"

namespace heddle::model::pack {

// The rows of a tensor with a row per token, in bytes; heads lie side by side in a row.
struct HeadBytes {
  const char* data = nullptr;
  int64_t row = 0, width = 0;  // from one row to the next; of a head

  HeadBytes(const at::Tensor& x, int64_t columns)
      : data(static_cast<const char*>(x.const_data_ptr())),
        row(x.stride(0) * x.element_size()),
        width(columns * x.element_size()) {}
};

// The work of a thread after a segment's head of keys; no segment: none.
struct After {
  const Segment* segment = nullptr;
  int64_t key_head = 0;
};

// Returns the next work of a thread that computes heads [begin, end) of one segment, then of the next.
inline After after(const std::vector<Segment>& segments, size_t segment, int64_t head, int64_t begin,
                   int64_t end) {
  if (head + 1 < end) return {&segments[segment], head + 1};
  if (segment + 1 < segments.size()) return {&segments[segment + 1], begin};
  return {};
}

// A few stretches of rows, fetched a few rows at a time: a short segment would otherwise wait for the memory
// at each of its rows.
class FetchAhead {
 public:
  static constexpr size_t kStretches = 8;

  // turns: how often next() is going to be called.
  void restart(int64_t turns) {
    used_ = now_ = 0;
    rows_ = per_turn_ = 0;
    turns_ = std::max<int64_t>(turns, 1);
  }

  // Rows [first, first + count) of a head; at most kStretches times after restart().
  void add(const HeadBytes& bytes, int64_t head, int64_t first, int64_t count) {
    TORCH_INTERNAL_ASSERT_DEBUG_ONLY(used_ < kStretches);
    const int64_t rows = std::min(count, kMostRows);
    stretches_[used_++] = {bytes.data + first * bytes.row + head * bytes.width, bytes.row, bytes.width, rows};
    rows_ += rows;
    per_turn_ = (rows_ + turns_ - 1) / turns_;
  }

  // Returns the lines to fetch next, at most `most`; none at the end.
  Fetch next(int64_t most = std::numeric_limits<int64_t>::max()) {
    if (now_ == used_) return {};
    Stretch& stretch = stretches_[now_];
    const int64_t lines = (stretch.width + kLine - 1) / kLine;
    const int64_t rows = std::min({per_turn_, stretch.left, most / lines});
    const Fetch out{stretch.address, rows * lines, lines, stretch.row - lines * kLine};
    stretch.address += rows * stretch.row;
    stretch.left -= rows;
    if (stretch.left == 0) ++now_;
    return out;
  }

 private:
  static constexpr int64_t kMostRows = 512;  // more would displace what is in use
  struct Stretch {
    const char* address;
    int64_t row, width, left;  // left: rows
  };
  std::array<Stretch, kStretches> stretches_;
  size_t used_ = 0, now_ = 0;
  int64_t turns_ = 1, rows_ = 0, per_turn_ = 0;  // per_turn: rows
};

}  // namespace heddle::model::pack
