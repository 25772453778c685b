// The forward of blocked attention: for each block of queries, the blocks of keys that it sees, one after
// another, or all at once where they are few.
#include "heddle/nn/attention_layout.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "lib/nn/attention/attend_pack.h"
#include "lib/nn/attention/fetch_ahead.h"

namespace heddle::model {
namespace {

using pack::QueryBlock;
using pack::Scratch;
using pack::Segment;

constexpr int64_t kBlockQueries = 96;

template <class Stored>
class Attending {
 public:
  using Number = Wide<Stored>;

  Attending(const BlockedInputs& in, const BlockedShape& shape, const at::Tensor& out,
            const at::Tensor& log_sums, bool onto)
      : in_(in),
        shape_(shape),
        out_(out),
        log_sums_(log_sums),
        onto_(onto),
        seen_(reinterpret_cast<const KeyRange*>(in.seen.const_data_ptr<int32_t>())),
        segments_(pack::segments_of(seen_, in.q.size(0), in.k.size(0), kBlockQueries)),
        key_heads_(in.k.size(1) / shape.head_dim),
        queries_of_key_(in.q.size(1) / shape.head_dim / key_heads_),
        queries_(in.q, shape.head_dim),
        keys_(in.k, shape.head_dim),
        values_(in.v, shape.value_dim),
        results_(out, shape.value_dim) {}

  // Heads of keys are split over the threads, and blocks of queries where the heads are few. Each segment
  // begins at another split: many short documents have a block each.
  void run() const {
    const int64_t blocks = (in_.q.size(0) + kBlockQueries - 1) / kBlockQueries;
    const int64_t splits =
        std::clamp<int64_t>(at::get_num_threads() / key_heads_, 1, std::max<int64_t>(blocks, 1));
    at::parallel_for(0, key_heads_ * splits, 1, [&](int64_t begin, int64_t end) {
      Room room = this->room();
      for (size_t s = 0; s < segments_.size(); ++s)
        for (int64_t task = begin; task < end; ++task) {
          const int64_t part = (task + static_cast<int64_t>(s)) % splits;
          if (splits == 1) room.after = pack::after(segments_, s, task, begin, end);
          attend_segment(segments_[s], task / splits, part, splits, room);
        }
    });
  }

 private:
  static constexpr Number kOne = 1;
  struct Room {
    Scratch<Number> keys_by_column, values, queries, out, scores, largest, totals;
    pack::FetchAhead ahead{};
    pack::After after{};
  };

  Room room() const {
    const int64_t keys = pack::largest_of(segments_).keys;
    const int64_t width = pack::padded(shape_.head_dim), value_width = pack::padded(shape_.value_dim);
    return {Scratch<Number>(pack::padded(keys, kBlockKeys) * shape_.head_dim),
            Scratch<Number>(keys * value_width),
            Scratch<Number>(kBlockQueries * width),
            Scratch<Number>(kBlockQueries * value_width),
            Scratch<Number>(kTileRows * kWholeKeys),
            Scratch<Number>(kBlockQueries),
            Scratch<Number>(kBlockQueries)};
  }

  void attend_segment(const Segment& segment, int64_t key_head, int64_t split, int64_t splits,
                      Room& room) const {
    const auto& blocks = segment.blocks;
    if (static_cast<size_t>(split) >= blocks.size()) return;
    rows_.pack_by_column(pack::columns_of<Stored>(in_.k, key_head, shape_.head_dim).from(segment.key),
                         segment.keys, static_cast<Number>(shape_.scale), room.keys_by_column.at(0));
    rows_.pack(pack::columns_of<Stored>(in_.v, key_head, shape_.value_dim).from(segment.key), segment.keys,
               Number{1}, room.values.at(0));
    const int64_t end = (key_head + 1) * queries_of_key_;
    for (int64_t head = key_head * queries_of_key_; head < end; ++head) {
      room.ahead.restart(fetches_of(segment) * 3 / 4);  // some are short
      if (splits == 1) fetch_after(segment, head, head + 1 == end, room);
      for (size_t i = static_cast<size_t>(split); i < blocks.size(); i += static_cast<size_t>(splits))
        attend_block(segment, blocks[i], head, room);
    }
  }

  // While this head is computed: its results, and what the next one reads.
  void fetch_after(const Segment& segment, int64_t head, bool last, Room& room) const {
    pack::FetchAhead& ahead = room.ahead;
    ahead.add(results_, head, segment.first, segment.count);
    if (!last) return ahead.add(queries_, head + 1, segment.first, segment.count);
    const auto& [next, key_head] = room.after;
    if (next == nullptr) return;
    ahead.add(keys_, key_head, next->key, next->keys);
    ahead.add(values_, key_head, next->key, next->keys);
    ahead.add(queries_, key_head * queries_of_key_, next->first, next->count);
  }

  // Begin of the first block of keys that a block of queries sees, within the segment.
  static int64_t first_key(const Segment& segment, const QueryBlock& block) {
    return std::max<int64_t>((block.begin - segment.key) / kBlockKeys * kBlockKeys, 0);
  }

  // Whether the tiles of a block see all of its keys at once.
  bool at_once(const Segment& segment, const QueryBlock& block) const {
    return !onto_ && block.end - segment.key - first_key(segment, block) <= kWholeKeys;
  }

  // About as many as attend_block() asks for.
  int64_t fetches_of(const Segment& segment) const {
    int64_t count = 0;
    for (const QueryBlock& block : segment.blocks) {
      const int64_t each = at_once(segment, block) ? 2 : (block.end - block.begin) / kBlockKeys + 1;
      count += static_cast<int64_t>(block.tiles.size()) * each;
    }
    return count;
  }

  void attend_block(const Segment& segment, const QueryBlock& block, int64_t head, Room& room) const {
    const pack::Rows<const Number> queries = queries_of(segment, block, head, room);
    const int64_t first = first_key(segment, block);
    if (at_once(segment, block)) return attend_at_once(segment, block, first, queries, head, room);
    begin_block(block, head, room);
    AttendTile<Number> tile;
    begin_tile(tile, queries, room);
    tile.out_row = tile.value_width;
    for (int64_t key = first; segment.key + key < block.end; key += kBlockKeys) {
      tile.keys_by_column = room.keys_by_column.at(key * shape_.head_dim);
      tile.values = room.values.at(key * tile.value_width);
      attend_keys(block, segment.key + key, queries, tile, room);
    }
    end_block(block, head, room);
  }

  template <class AnyTile>
  void begin_tile(AnyTile& tile, const pack::Rows<const Number>& queries, Room& room) const {
    tile.head_dim = shape_.head_dim;
    tile.value_dim = shape_.value_dim;
    tile.value_width = pack::padded(shape_.value_dim);
    tile.query_row = queries.row;
    tile.cap = static_cast<Number>(shape_.soft_cap);
    tile.scores = room.scores.at(0);
  }

  // Tiles that see all their keys at once, from `key` of the segment on.
  void attend_at_once(const Segment& segment, const QueryBlock& block, int64_t key,
                      const pack::Rows<const Number>& queries, int64_t head, Room& room) const {
    WholeTile<Number> tile;
    begin_tile(tile, queries, room);
    tile.keys_by_column = room.keys_by_column.at(key * shape_.head_dim);
    tile.values = room.values.at(key * tile.value_width);
    const pack::Rows<Number> out = results_of(segment, block, head, room);
    tile.out_row = out.row;
    KeyRange within[kTileRows];
    tile.seen = within;
    const auto start = static_cast<int32_t>(segment.key + key);
    for (const pack::TileRows& rows : block.tiles) {
      const int64_t query = block.first + rows.row;
      for (int64_t row = 0; row < rows.count; ++row)
        within[row] = {seen_[query + row].begin - start, seen_[query + row].end - start};
      tile.rows = rows.count;
      tile.queries = queries.at(rows.row);
      tile.out = out.at(rows.row);
      tile.log_sums = log_sums_of(head) + query;
      tile.fetch = room.ahead.next(shape_.head_dim);
      tile.second_fetch = room.ahead.next(rows.end - rows.begin);
      kernels_.attend_whole(tile);
    }
    if (out.data == room.out.at(0)) write(block, head, room, &kOne, 0);
  }

  // Returns the rows that the tiles of a block write: the result itself, or scratch.
  pack::Rows<Number> results_of(const Segment& segment, const QueryBlock& block, int64_t head,
                                Room& room) const {
    if (!pack::in_place<Number>(out_, shape_.value_dim, segment.count))
      return {room.out.at(0), pack::padded(shape_.value_dim)};
    const auto rows = pack::mutable_columns_of<Number>(out_, head, shape_.value_dim).from(block.first);
    return {rows.data, rows.row};
  }

  pack::Rows<const Number> queries_of(const Segment& segment, const QueryBlock& block, int64_t head,
                                      Room& room) const {
    const auto rows = pack::columns_of<Stored>(in_.q, head, shape_.head_dim).from(block.first);
    if constexpr (std::is_same_v<Stored, Number>)
      if (pack::in_place<Number>(in_.q, shape_.head_dim, segment.count)) return {rows.data, rows.row};
    rows_.pack(rows, block.count, 1, room.queries.at(0));
    return {room.queries.at(0), pack::padded(shape_.head_dim)};
  }

  void attend_keys(const QueryBlock& block, int64_t key, const pack::Rows<const Number>& queries,
                   AttendTile<Number>& tile, Room& room) const {
    KeyRange clipped[kTileRows];
    tile.seen = clipped;
    for (const pack::TileRows& rows : block.tiles) {
      if (!pack::clip(seen_ + block.first + rows.row, rows, key, clipped)) continue;
      tile.rows = rows.count;
      tile.queries = queries.at(rows.row);
      tile.out = room.out.at(rows.row * tile.out_row);
      tile.largest = room.largest.at(rows.row);
      tile.totals = room.totals.at(rows.row);
      tile.fetch = room.ahead.next();
      kernels_.attend(tile);
    }
  }

  Number* log_sums_of(int64_t head) const {
    return log_sums_.mutable_data_ptr<Number>() + head * log_sums_.size(1);
  }

  void begin_block(const QueryBlock& block, int64_t head, Room& room) const {
    if (!onto_) {
      std::fill_n(room.out.at(0), block.count * pack::padded(shape_.value_dim), Number{0});
      std::fill_n(room.largest.at(0), block.count, -INFINITY);
      std::fill_n(room.totals.at(0), block.count, Number{0});
      return;
    }
    wide_.pack(pack::columns_of<Number>(out_, head, shape_.value_dim).from(block.first), block.count,
               Number{1}, room.out.at(0));
    const Number* const log_sums = log_sums_of(head) + block.first;
    for (int64_t row = 0; row < block.count; ++row) {
      const Number log_sum = log_sums[row];
      *room.largest.at(row) = log_sum;
      *room.totals.at(row) = log_sum == -INFINITY ? 0 : 1;
    }
  }

  void end_block(const QueryBlock& block, int64_t head, Room& room) const {
    Number* const log_sums = log_sums_of(head) + block.first;
    Number* const shares = room.totals.at(0);
    for (int64_t row = 0; row < block.count; ++row) {
      const Number total = shares[row];
      log_sums[row] = total > 0 ? *room.largest.at(row) + std::log(total) : -INFINITY;
      shares[row] = total > 0 ? 1 / total : 0;
    }
    write(block, head, room, shares, 1);
  }

  void write(const QueryBlock& block, int64_t head, Room& room, const Number* factors, int64_t step) const {
    const auto write_as = [&]<class Written>(const pack::RowKernels<Written>& rows) {
      rows.write(room.out.at(0), block.count, factors, step, false,
                 pack::mutable_columns_of<Written>(out_, head, shape_.value_dim).from(block.first));
    };
    if (out_.scalar_type() == log_sums_.scalar_type()) return write_as(wide_);
    write_as(rows_);
  }

  const BlockedInputs& in_;
  const BlockedShape& shape_;
  const at::Tensor &out_, &log_sums_;
  bool onto_;
  const KeyRange* seen_;
  std::vector<Segment> segments_;
  int64_t key_heads_, queries_of_key_;
  pack::HeadBytes queries_, keys_, values_, results_;
  const TileKernels<Number>& kernels_ = tile_kernels<Number>();
  const pack::RowKernels<Stored>& rows_ = pack::row_kernels<Stored>();
  const pack::RowKernels<Number>& wide_ = pack::row_kernels<Number>();
};

}  // namespace

bool has_attention_kernel(const at::Tensor& x) {
  const at::ScalarType dtype = x.scalar_type();
  return x.is_cpu() && x.dim() == 2 && x.stride(1) == 1 &&
         (dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf || dtype == at::kDouble);
}

void attend_blocked_cpu(const BlockedInputs& in, const BlockedShape& shape, const at::Tensor& out,
                        const at::Tensor& log_sums, bool onto) {
  pack::check(in, shape);
  pack::run_stored(in.q.scalar_type(),
                   [&]<class Stored>(Stored) { Attending<Stored>(in, shape, out, log_sums, onto).run(); });
}

}  // namespace heddle::model
