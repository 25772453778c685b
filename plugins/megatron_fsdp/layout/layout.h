// Layout of parameters in flat buffers, and the part of each rank. Arithmetic without tensors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace heddle::megatron_fsdp {

// Elements [begin, end) of a flat buffer.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Rounds `value` up to a multiple of `multiple`.
constexpr int64_t up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Returns the intersection of two ranges. Empty (size 0) if they are disjoint.
Range meet(Range a, Range b);

// --- Buckets of a flat buffer, modeled on Megatron-Core's distributed optimizer.

// Rounds the start of a parameter up to a multiple of 64 elements.
int64_t pad_parameter_start(int64_t element);
// Padding of a bucket's end. narrow: to a multiple of lcm(ranks, 128). wide: also to a multiple of 2^16,
// because ring messages are fastest at powers of two.
enum class Padding { none, narrow, wide };
int64_t pad_bucket_end(int64_t element, int ranks, Padding padding);

struct BufferRules {
  int64_t bucket_elements = 0;  // size at which a bucket is closed; 0: one bucket
  int ranks = 1;
  Padding padding = Padding::none;
};

struct BufferItem {
  int64_t elements = 0;
  bool alone = false;  // separate bucket, so that no other parameter waits for its gradient
};

struct BufferLayout {
  struct Place {
    Range range;  // in the buffer
    int bucket = 0;
  };
  std::vector<Place> items;       // in the given order
  std::vector<Range> buckets;     // bucket 0 holds the last items, whose gradients come first
  std::vector<int64_t> unpadded;  // elements of each bucket before padding
  int64_t elements = 0;
};

// Places items from the last to the first.
BufferLayout lay_out_buffer(std::span<const BufferItem> items, const BufferRules& rules);

// --- Layout that keeps rows whole, modeled on Megatron-FSDP's second version.

struct RowItem {
  int64_t elements = 0;
  int64_t row = 1;  // elements of one row of dim 0
};

struct RowLayout {
  std::vector<int64_t> offsets;  // of the items, in the given order
  int64_t elements = 0;          // a multiple of ranks * chunk
};

// Lays out items so that no rank's part begins inside a row. Parts are multiples of the chunk, which is the
// least common multiple of all row sizes. Items of at least one chunk keep their order. The gap before the
// next chunk is filled with the head of an item that ends on a chunk, and with small items, largest first.
RowLayout lay_out_rows(std::span<const RowItem> items, int ranks);

// --- Shards.

// Part of rank `rank` of a range whose size is a multiple of the number of ranks.
Range part_of(Range whole, int ranks, int rank);

// One parameter's share of a rank's part of a bucket, in four coordinate systems.
struct ShardMap {
  Range buffer, bucket, part, parameter;
  bool operator==(const ShardMap&) const = default;
};

// `item` and `bucket` are ranges of the buffer. All ranges are empty if the rank holds nothing of the item.
ShardMap map_shard(Range item, Range bucket, int ranks, int rank);

}  // namespace heddle::megatron_fsdp
