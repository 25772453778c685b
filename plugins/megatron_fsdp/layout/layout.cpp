// Padding, buckets and shard maps.
#include "layout.h"

#include <algorithm>
#include <numeric>

namespace heddle::megatron_fsdp {
namespace {

constexpr int64_t kParameterStart = 64, kBucketEnd = 128, kBusWidth = 1 << 16;

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
  int64_t begin = 0, at = 0;  // begin of the open bucket, and end of its items
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

}  // namespace heddle::megatron_fsdp
