// Rows of tensors that are brought into the cache while tiles before them are computed.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdint>
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

// What a thread computes after a segment's head of keys; no segment: nothing.
struct After {
  const Segment* segment = nullptr;
  int64_t key_head = 0;
};

// Where a thread computes the heads [begin, end) of one segment, then those of the next.
inline After after(const std::vector<Segment>& segments, size_t segment, int64_t head, int64_t begin,
                   int64_t end) {
  if (head + 1 < end) return {&segments[segment], head + 1};
  if (segment + 1 < segments.size()) return {&segments[segment + 1], begin};
  return {};
}

// A few stretches of rows, fetched some rows at a time: a short segment would otherwise wait for the memory
// at each of its rows.
class FetchAhead {
 public:
  static constexpr size_t kStretches = 8;

  // steps: how often step() is going to be called.
  void restart(int64_t steps) {
    used_ = 0;
    turns_ = 0;
    steps_ = std::max<int64_t>(steps, 1);
  }

  // Rows [first, first + count) of a head; at most kStretches times after restart().
  void add(const HeadBytes& of, int64_t head, int64_t first, int64_t count) {
    TORCH_INTERNAL_ASSERT_DEBUG_ONLY(used_ < kStretches);
    const int64_t rows = std::min(count, kMostRows);
    const int64_t per_step = (rows + steps_ - 1) / steps_;
    stretches_[used_++] = {of.data + first * of.row + head * of.width, of.row, of.width, rows, per_step};
    if (per_step > 0) turns_ = std::max(turns_, (rows + per_step - 1) / per_step);
  }

  // Some more of each.
  void step() {
    if (turns_ == 0) return;
    --turns_;
    for (size_t i = 0; i < used_; ++i) {
      Stretch& one = stretches_[i];
      for (int64_t row = std::min(one.per_step, one.left); row > 0; --row, --one.left, one.at += one.row)
        for (int64_t byte = 0; byte < one.width; byte += kLine) __builtin_prefetch(one.at + byte, 0, 2);
    }
  }

 private:
  static constexpr int64_t kLine = 64, kMostRows = 512;  // more than these would displace what is in use
  struct Stretch {
    const char* at;
    int64_t row, width, left, per_step;  // left: rows
  };
  std::array<Stretch, kStretches> stretches_;
  size_t used_ = 0;
  int64_t steps_ = 1, turns_ = 0;  // turns: how many steps have something left to do
};

}  // namespace heddle::model::pack
