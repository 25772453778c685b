// The layout of parameters in flat buffers, and the part of a rank: arithmetic without tensors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace heddle::megatron_fsdp {

// Elements [begin, end) of something flat.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// The least multiple of `multiple` that is not below `value`.
constexpr int64_t up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// The intersection of two ranges; empty (of size 0) if they are disjoint.
Range meet(Range a, Range b);

// --- Buckets of a flat buffer, after Megatron-Core's distributed optimizer.

// A parameter starts at a multiple of 64 elements.
int64_t pad_parameter_start(int64_t element);
// A bucket ends at a multiple of lcm(ranks, 128), and of 2^16 as well in the wide form: messages of rings are
// fastest at powers of two.
enum class Padding { none, narrow, wide };
int64_t pad_bucket_end(int64_t element, int ranks, Padding padding);

struct BufferRules {
  int64_t bucket_elements = 0;  // a bucket is closed when it has reached this; 0: one bucket
  int ranks = 1;
  Padding padding = Padding::none;
};

struct BufferItem {
  int64_t elements = 0;
  bool alone = false;  // a bucket of its own, so that no other parameter waits for its gradient
};

struct BufferLayout {
  struct Place {
    Range range;  // in the buffer
    int bucket = 0;
  };
  std::vector<Place> items;       // in the order in which they were given
  std::vector<Range> buckets;     // bucket 0 holds the last items, whose gradients come first
  std::vector<int64_t> unpadded;  // elements of each bucket before its padding
  int64_t elements = 0;
};

// Places items from the last to the first.
BufferLayout lay_out_buffer(std::span<const BufferItem> items, const BufferRules& rules);

// --- Rows kept whole, after Megatron-FSDP's second version.

struct RowItem {
  int64_t elements = 0;
  int64_t row = 1;  // elements of one row of dim 0
};

struct RowLayout {
  std::vector<int64_t> offsets;  // of the items, in the order in which they were given
  int64_t elements = 0;          // a multiple of ranks times the chunk
};

// No part of a rank begins inside a row: parts are multiples of the chunk, the least common multiple of all
// rows. Items of a chunk and more are in order; the gap before the next chunk is filled by the head of an
// item that ends on a chunk itself, and by small items, the largest first.
RowLayout lay_out_rows(std::span<const RowItem> items, int ranks);

// --- Shards.

// The part of rank `rank` of a range that divides by the ranks.
Range part_of(Range whole, int ranks, int rank);

// One parameter's share of a rank's part of a bucket, in four coordinates.
struct ShardMap {
  Range buffer, bucket, part, parameter;
  bool operator==(const ShardMap&) const = default;
};

// `item` and `bucket` are ranges of the buffer. All ranges are empty if the rank has nothing of the item.
ShardMap map_shard(Range item, Range bucket, int ranks, int rank);

}  // namespace heddle::megatron_fsdp
