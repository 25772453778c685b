// Flat buffers of parameters: which neighbours share one, and the boxes of a range of a flattened parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/parallel/shard.h"

namespace heddle::parallel {

// A box of a tensor whose elements are contiguous in the flattened tensor.
struct FlatBox {
  int64_t begin = 0;                  // its first element in the flattened tensor
  std::vector<int64_t> offset, size;  // along each dim of the tensor
  bool operator==(const FlatBox&) const = default;
};

// Elements [begin, end) of a flattened tensor of these sizes, in order: the rest of a row, whole rows, the
// start of a row. Empty for an empty range.
HEDDLE_API std::vector<FlatBox> boxes_of_range(std::span<const int64_t> sizes, int64_t begin, int64_t end);

// Elements [begin, end) of a flattened parameter as shards. `whole` is whole_shard() of its slot, `sizes` are
// those of the slot's tensor, and `held` is a flat tensor [end - begin] with the values. The shards are
// views of `held` that are leaves of autograd and require a gradient where `trainable`. One empty shard for
// an empty range.
HEDDLE_API std::vector<Shard> shards_of_range(const Shard& whole, std::span<const int64_t> sizes,
                                              int64_t begin, int64_t end, const at::Tensor& held,
                                              bool trainable);

// Tensors [first, last) of a list that are reduced or gathered in one call.
struct FlatBucket {
  size_t first = 0, last = 0;
  int64_t elements = 0;
  bool operator==(const FlatBucket&) const = default;
};

// Neighbours of one dtype, in order; a bucket is closed when it has at least `bytes` bytes.
HEDDLE_API std::vector<FlatBucket> flat_buckets(std::span<const at::Tensor> tensors, int64_t bytes);

}  // namespace heddle::parallel
