// Segments, blocks and tiles of queries.
#include "lib/nn/attention/attend_pack.h"

#include "heddle/base/error.h"

namespace heddle::model::pack {
namespace {

bool sees_nothing(const KeyRange& seen) {
  return seen.begin >= seen.end;
}

// Whether `seen` may join a tile that sees [begin, end).
bool joins(const TileRows& tile, const KeyRange& seen) {
  if (tile.count == kTileRows) return false;
  return sees_nothing(seen) || tile.begin >= tile.end || (seen.begin < tile.end && seen.end > tile.begin);
}

void widen(int32_t& begin, int32_t& end, const KeyRange& seen) {
  if (sees_nothing(seen)) return;
  const bool empty = begin >= end;
  begin = empty ? seen.begin : std::min(begin, seen.begin);
  end = empty ? seen.end : std::max(end, seen.end);
}

std::vector<QueryBlock> query_blocks(const KeyRange* seen, int64_t begin, int64_t queries, int64_t block) {
  std::vector<QueryBlock> out;
  out.reserve(static_cast<size_t>((queries + block - 1) / block));
  for (int64_t first = begin; first < begin + queries; first += block) {
    QueryBlock& one = out.emplace_back();
    one.first = first;
    one.count = std::min(block, begin + queries - first);
    for (int64_t row = 0; row < one.count; ++row) {
      const KeyRange& range = seen[first + row];
      if (one.tiles.empty() || !joins(one.tiles.back(), range)) one.tiles.push_back({row, 0, 0, 0});
      TileRows& tile = one.tiles.back();
      ++tile.count;
      widen(tile.begin, tile.end, range);
      widen(one.begin, one.end, range);
    }
  }
  return out;
}

}  // namespace

void check(const BlockedInputs& in, const BlockedShape& shape) {
  const bool readable = has_attention_kernel(in.q) && has_attention_kernel(in.k) &&
                        has_attention_kernel(in.v) && in.q.scalar_type() == in.k.scalar_type() &&
                        in.q.scalar_type() == in.v.scalar_type();
  const bool fit = readable && in.k.size(0) == in.v.size(0) && in.seen.size(0) == in.q.size(0) &&
                   in.q.size(1) % in.k.size(1) == 0 && in.k.size(1) % shape.head_dim == 0 &&
                   in.k.size(1) / shape.head_dim * shape.value_dim == in.v.size(1);
  if (!fit)
    throw Error(
        ErrorCode::internal, "model",
        "the attention of the CPU takes queries, keys and values as rows of one dtype whose heads fit");
}

std::vector<Segment> segments_of(const KeyRange* seen, int64_t queries, int64_t keys, int64_t block) {
  std::vector<int32_t> later(static_cast<size_t>(queries) + 1, static_cast<int32_t>(keys));
  for (int64_t i = queries; i-- > 0;) {  // the first key that query i or a later one sees
    const auto at = static_cast<size_t>(i);
    later[at] = sees_nothing(seen[i]) ? later[at + 1] : std::min(later[at + 1], seen[i].begin);
  }
  std::vector<Segment> out(1);
  int32_t end = 0;
  for (int64_t i = 0; i < queries; ++i) {
    const int32_t begin = later[static_cast<size_t>(i)];
    if (!sees_nothing(seen[i]) && end > 0 && begin >= end) {
      out.back().count = i - out.back().first;
      out.back().keys = begin - out.back().key;
      out.push_back({i, 0, begin, 0});
    }
    if (!sees_nothing(seen[i])) end = std::max(end, seen[i].end);
  }
  out.back().count = queries - out.back().first;
  out.back().keys = keys - out.back().key;
  for (Segment& one : out) {
    one.blocks = query_blocks(seen, one.first, one.count, block);
    for (const QueryBlock& of : one.blocks)
      one.products += static_cast<int64_t>(of.tiles.size()) * ((of.end - of.begin) / kBlockKeys + 1);
  }
  return out;
}

Segment largest_of(const std::vector<Segment>& segments) {
  Segment out;
  for (const Segment& one : segments) {
    out.count = std::max(out.count, one.count);
    out.keys = std::max(out.keys, one.keys);
  }
  return out;
}

bool clip(const KeyRange* seen, const TileRows& rows, int64_t key, KeyRange* clipped) {
  if (rows.end <= key || rows.begin >= key + kBlockKeys) return false;
  bool any = false;
  for (int64_t row = 0; row < rows.count; ++row) {
    const int64_t begin = std::max<int64_t>(seen[row].begin - key, 0);
    const int64_t end = std::min<int64_t>(seen[row].end - key, kBlockKeys);
    clipped[row] =
        begin < end ? KeyRange{static_cast<int32_t>(begin), static_cast<int32_t>(end)} : KeyRange{0, 0};
    any = any || begin < end;
  }
  return any;
}

}  // namespace heddle::model::pack
