// Flat buffers of parameters: grouping tensors into buckets, and mapping ranges of a flattened parameter to
// boxes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "heddle/base/export.h"
#include "heddle/parallel/shard.h"

namespace heddle::parallel {

// A box of a tensor that is contiguous in the flattened tensor.
struct FlatBox {
  int64_t begin = 0;                  // index of the first element in the flattened tensor
  std::vector<int64_t> offset, size;  // along each dim of the tensor
  bool operator==(const FlatBox&) const = default;
};

// Returns the boxes of elements [begin, end) of a flattened tensor of these sizes, in order: the rest of a
// row, whole rows, the start of a row. Empty for an empty range.
HEDDLE_API std::vector<FlatBox> boxes_of_range(std::span<const int64_t> sizes, int64_t begin, int64_t end);

// Returns the shards of elements [begin, end) of a flattened parameter. whole: whole_shard() of its slot.
// sizes: of the slot's tensor. held: a flat tensor [end - begin] with the values. The shards are views of
// `held` and autograd leaves, which require a gradient if `trainable`. An empty range gives one empty shard.
HEDDLE_API std::vector<Shard> shards_of_range(const Shard& whole, std::span<const int64_t> sizes,
                                              int64_t begin, int64_t end, const at::Tensor& held,
                                              bool trainable);

// Tensors [first, last) of a list that are reduced or gathered in one collective.
struct FlatBucket {
  size_t first = 0, last = 0;
  int64_t elements = 0;
  bool operator==(const FlatBucket&) const = default;
};

// Groups consecutive tensors of equal dtype. A bucket is closed once it has at least `bytes` bytes.
HEDDLE_API std::vector<FlatBucket> flat_buckets(std::span<const at::Tensor> tensors, int64_t bytes);

}  // namespace heddle::parallel
