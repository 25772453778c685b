// Padding, buckets, shard maps and boxes.
#include "layout.h"

#include <algorithm>
#include <numeric>

namespace heddle::megatron_fsdp {
namespace {

constexpr int64_t kParameterStart = 64, kBucketEnd = 128, kBusWidth = 1 << 16;

int64_t up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Boxes of a tensor whose leading dims are fixed at `at`; `sizes` are the dims that are left.
void add_boxes(std::span<const int64_t> sizes, Range range, int64_t start, std::vector<int64_t>& at,
               std::vector<FlatBox>& out) {
  const auto add = [&](std::vector<int64_t> offset, std::vector<int64_t> size, int64_t begin) {
    std::vector<int64_t> whole_size(at.size(), 1), whole_offset = at;
    whole_offset.insert(whole_offset.end(), offset.begin(), offset.end());
    whole_size.insert(whole_size.end(), size.begin(), size.end());
    out.push_back({start + begin, std::move(whole_offset), std::move(whole_size)});
  };
  if (sizes.size() <= 1) return add({range.begin}, {range.size()}, range.begin);
  const int64_t row = std::accumulate(sizes.begin() + 1, sizes.end(), int64_t{1}, std::multiplies<>());
  const auto inside_row = [&](Range part) {
    const int64_t index = part.begin / row;
    at.push_back(index);
    add_boxes(sizes.subspan(1), {part.begin - index * row, part.end - index * row}, start + index * row, at,
              out);
    at.pop_back();
  };
  const int64_t first = up(range.begin, row), last = range.end / row * row;
  if (first > last) return inside_row(range);
  if (range.begin < first) inside_row({range.begin, first});
  if (first < last) {
    std::vector<int64_t> offset(sizes.size(), 0), size(sizes.begin(), sizes.end());
    offset[0] = first / row;
    size[0] = (last - first) / row;
    add(std::move(offset), std::move(size), first);
  }
  if (last < range.end) inside_row({last, range.end});
}

}  // namespace

Range meet(Range a, Range b) {
  const Range both{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return both.begin < both.end ? both : Range{both.begin, both.begin};
}

int64_t pad_parameter_start(int64_t element) {
  return up(element, kParameterStart);
}

int64_t pad_bucket_end(int64_t element, int ranks, Padding padding) {
  if (padding == Padding::none) return element;
  const int64_t narrow = std::lcm(int64_t{ranks}, kBucketEnd);
  return up(element, padding == Padding::wide ? std::lcm(narrow, kBusWidth) : narrow);
}

BufferLayout lay_out_buffer(std::span<const BufferItem> items, const BufferRules& rules) {
  BufferLayout out;
  out.items.resize(items.size());
  int64_t begin = 0, at = 0;  // of the open bucket, and the end of what lies in it
  bool open = false;
  const auto close = [&] {
    if (!open) return;
    const int64_t end = pad_bucket_end(at, rules.ranks, rules.padding);
    out.buckets.push_back({begin, end});
    out.unpadded.push_back(at - begin);
    begin = at = end;
    open = false;
  };
  for (size_t i = items.size(); i-- > 0;) {
    if (items[i].alone) close();
    const int64_t start = rules.padding == Padding::none ? at : pad_parameter_start(at);
    at = start + items[i].elements;
    out.items[i] = {{start, at}, static_cast<int>(out.buckets.size())};
    open = true;
    if (items[i].alone || (rules.bucket_elements > 0 && at - begin >= rules.bucket_elements)) close();
  }
  close();
  out.elements = begin;
  return out;
}

Range part_of(Range whole, int ranks, int rank) {
  const int64_t part = whole.size() / ranks;
  return {whole.begin + rank * part, whole.begin + (rank + 1) * part};
}

ShardMap map_shard(Range item, Range bucket, int ranks, int rank) {
  const Range part = part_of(bucket, ranks, rank), mine = meet(item, part);
  if (mine.size() == 0) return {};
  const auto from = [&](int64_t origin) { return Range{mine.begin - origin, mine.end - origin}; };
  return {mine, from(bucket.begin), from(part.begin), from(item.begin)};
}

std::vector<FlatBox> boxes_of(std::span<const int64_t> sizes, Range range) {
  std::vector<FlatBox> out;
  if (range.size() == 0) return out;
  if (sizes.empty()) return {FlatBox{}};
  std::vector<int64_t> at;
  add_boxes(sizes, range, 0, at, out);
  return out;
}

}  // namespace heddle::megatron_fsdp
