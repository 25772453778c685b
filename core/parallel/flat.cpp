// Boxes of ranges, dim by dim, and buckets of neighbours.
#include "heddle/parallel/flat.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace heddle::parallel {
namespace {

// Boxes of a tensor whose leading dims are fixed at `at`; `sizes` are the dims that are left, and `start` is
// where they begin in the flattened tensor.
void add_boxes(std::span<const int64_t> sizes, int64_t begin, int64_t end, int64_t start,
               std::vector<int64_t>& at, std::vector<FlatBox>& out) {
  const auto add = [&](std::vector<int64_t> offset, std::vector<int64_t> size, int64_t first) {
    std::vector<int64_t> whole_size(at.size(), 1), whole_offset = at;
    whole_offset.insert(whole_offset.end(), offset.begin(), offset.end());
    whole_size.insert(whole_size.end(), size.begin(), size.end());
    out.push_back({start + first, std::move(whole_offset), std::move(whole_size)});
  };
  if (sizes.size() <= 1) return add({begin}, {end - begin}, begin);
  const int64_t row = std::accumulate(sizes.begin() + 1, sizes.end(), int64_t{1}, std::multiplies<>());
  const auto inside_row = [&](int64_t from, int64_t to) {
    const int64_t index = from / row;
    at.push_back(index);
    add_boxes(sizes.subspan(1), from - index * row, to - index * row, start + index * row, at, out);
    at.pop_back();
  };
  const int64_t first = (begin + row - 1) / row * row, last = end / row * row;
  if (first > last) return inside_row(begin, end);
  if (begin < first) inside_row(begin, first);
  if (first < last) {
    std::vector<int64_t> offset(sizes.size(), 0), size(sizes.begin(), sizes.end());
    offset[0] = first / row;
    size[0] = (last - first) / row;
    add(std::move(offset), std::move(size), first);
  }
  if (last < end) inside_row(last, end);
}

}  // namespace

std::vector<FlatBox> boxes_of_range(std::span<const int64_t> sizes, int64_t begin, int64_t end) {
  std::vector<FlatBox> out;
  if (begin >= end) return out;
  if (sizes.empty()) return {FlatBox{}};
  std::vector<int64_t> at;
  add_boxes(sizes, begin, end, 0, at, out);
  return out;
}

std::vector<Shard> shards_of_range(const Shard& whole, std::span<const int64_t> sizes, int64_t begin,
                                   int64_t end, const at::Tensor& held, bool trainable) {
  std::vector<FlatBox> boxes = boxes_of_range(sizes, begin, end);
  if (boxes.empty() && !sizes.empty()) {  // this rank has nothing of it
    boxes.push_back({begin, std::vector<int64_t>(sizes.size(), 0), {sizes.begin(), sizes.end()}});
    boxes[0].size[0] = 0;
  }
  std::vector<Shard> out;
  for (const FlatBox& box : boxes) {
    Shard& shard = out.emplace_back(whole);
    for (size_t dim = 0; dim < box.offset.size(); ++dim) shard.offset[dim] += box.offset[dim];
    const int64_t elements =
        std::accumulate(box.size.begin(), box.size.end(), int64_t{1}, std::multiplies<>());
    shard.tensor = held.detach().narrow(0, box.begin - begin, elements).view(box.size).detach();
    shard.tensor.set_requires_grad(trainable);
  }
  return out;
}

std::vector<FlatBucket> flat_buckets(std::span<const at::Tensor> tensors, int64_t bytes) {
  std::vector<FlatBucket> out;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    const bool fits = !out.empty() && tensors[i - 1].scalar_type() == tensor.scalar_type() &&
                      out.back().elements * tensor.element_size() < bytes;
    if (!fits) out.push_back({i, i, 0});
    ++out.back().last;
    out.back().elements += tensor.numel();
  }
  return out;
}

}  // namespace heddle::parallel
