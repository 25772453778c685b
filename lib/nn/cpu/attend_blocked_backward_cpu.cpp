// The backward of blocked attention: scores are computed again, block of keys by block of keys (Dao 2023).
#include <ATen/Parallel.h>

#include <cmath>

#include "heddle/nn/attention_layout.h"
#include "lib/nn/attention/attend_pack.h"
#include "lib/nn/attention/fetch_ahead.h"

namespace heddle::model {
namespace {

using pack::QueryBlock;
using pack::Scratch;
using pack::Segment;
using pack::TileRows;

constexpr int64_t kBlockQueriesBack = 96;

template <class Stored>
class AttentionBackward {
 public:
  using Number = Wide<Stored>;

  AttentionBackward(const BlockedInputs& in, const BlockedShape& shape, const at::Tensor& d_out,
                    const at::Tensor& out, const at::Tensor& log_sums, const BlockedGradients& into, bool add)
      : in_(in),
        shape_(shape),
        d_out_(d_out),
        out_(out),
        log_sums_(log_sums),
        into_(into),
        add_(add),
        seen_(reinterpret_cast<const KeyRange*>(in.seen.const_data_ptr<int32_t>())),
        segments_(pack::segments_of(seen_, in.q.size(0), in.k.size(0), kBlockQueriesBack)),
        key_heads_(in.k.size(1) / shape.head_dim),
        queries_of_key_(in.q.size(1) / shape.head_dim / key_heads_),
        width_(pack::padded(shape.head_dim)),
        value_width_(pack::padded(shape.value_dim)),
        rows_{{in.q, shape.head_dim},   {in.k, shape.head_dim},   {in.v, shape.value_dim},
              {d_out, shape.value_dim}, {out, shape.value_dim},   {into.q, shape.head_dim},
              {into.k, shape.head_dim}, {into.v, shape.value_dim}} {}

  // Heads of keys are split over the threads.
  void run() const {
    at::parallel_for(0, key_heads_, 1, [&](int64_t begin, int64_t end) {
      Room room = this->room();
      for (size_t s = 0; s < segments_.size(); ++s)
        for (int64_t head = begin; head < end; ++head) {
          room.after = pack::after(segments_, s, head, begin, end);
          through_key_head(segments_[s], head, room);
        }
    });
  }

 private:
  struct Room {
    Scratch<Number> keys_by_column, values_by_column, keys, d_keys, d_values;  // of a segment's head of keys
    Scratch<Number> queries, d_out, d_queries, along;                          // of its head of queries
    Scratch<Number> weights, gradients;  // [kBlockQueriesBack, kBlockKeys]
    pack::FetchAhead ahead{};
    pack::After after{};
  };

  Room room() const {
    const Segment most = pack::largest_of(segments_);
    const int64_t whole = pack::padded(most.keys, kBlockKeys), queries = most.count;
    return {Scratch<Number>(whole * shape_.head_dim),
            Scratch<Number>(whole * shape_.value_dim),
            Scratch<Number>(whole * width_),
            Scratch<Number>(whole * width_),
            Scratch<Number>(whole * value_width_),
            Scratch<Number>(queries * width_),
            Scratch<Number>(queries * value_width_),
            Scratch<Number>(queries * width_),
            Scratch<Number>(queries),
            Scratch<Number>(kBlockQueriesBack * kBlockKeys),
            Scratch<Number>(kBlockQueriesBack * kBlockKeys)};
  }

  void through_key_head(const Segment& segment, int64_t key_head, Room& room) const {
    const int64_t first = segment.key, count = segment.keys;
    const auto keys = pack::columns_of<Stored>(in_.k, key_head, shape_.head_dim).from(first);
    const auto scale = static_cast<Number>(shape_.scale);
    kept_.pack_by_column(keys, count, scale, room.keys_by_column.at(0));
    kept_.pack_by_column(pack::columns_of<Stored>(in_.v, key_head, shape_.value_dim).from(first), count,
                         Number{1}, room.values_by_column.at(0));
    kept_.pack(keys, count, scale, room.keys.at(0));
    room.d_keys.clear(count * width_);
    room.d_values.clear(count * value_width_);
    const int64_t end = (key_head + 1) * queries_of_key_;
    for (int64_t head = key_head * queries_of_key_; head < end; ++head) {
      fetch_after(segment, key_head, head, head + 1 == end, room);
      through_head(segment, head, room);
    }
    write_rows(room.d_keys.at(0), scale, into_.k, first, count, key_head, shape_.head_dim);
    write_rows(room.d_values.at(0), 1, into_.v, first, count, key_head, shape_.value_dim);
  }

  // While this head is computed: what its gradients are written to, and what the next one reads.
  void fetch_after(const Segment& segment, int64_t key_head, int64_t head, bool last, Room& room) const {
    pack::FetchAhead& ahead = room.ahead;
    const auto read = [&](const Segment& of, int64_t at) {
      for (const pack::HeadBytes* x : {&rows_.q, &rows_.d_out, &rows_.out, &rows_.d_q})
        ahead.add(*x, at, of.first, of.count);
    };
    ahead.restart(segment.products * 3 / 2);  // two for each tile, and some to spare
    if (!last) return read(segment, head + 1);
    for (const pack::HeadBytes* x : {&rows_.d_k, &rows_.d_v})
      ahead.add(*x, key_head, segment.key, segment.keys);
    const auto& [next, next_head] = room.after;
    if (next == nullptr) return;
    for (const pack::HeadBytes* x : {&rows_.k, &rows_.v}) ahead.add(*x, next_head, next->key, next->keys);
    read(*next, next_head * queries_of_key_);
  }

  void through_head(const Segment& segment, int64_t head, Room& room) const {
    const int64_t first = segment.first, count = segment.count;
    const HeadRows of{rows_of(in_.q, segment, head, shape_.head_dim, room.queries),
                      rows_of(d_out_, segment, head, shape_.value_dim, room.d_out),
                      sums_of(segment, head, room)};
    of_dtype(out_, [&]<class Written>(const pack::RowKernels<Written>& rows) {
      rows.dot(pack::columns_of<Written>(out_, head, shape_.value_dim).from(first), count, of.d_out.data,
               of.d_out.row, room.along.at(0));
    });
    for (int64_t key = 0; key < segment.keys; key += kBlockKeys)
      for (const QueryBlock& block : segment.blocks)
        if (block.begin < segment.key + key + kBlockKeys && block.end > segment.key + key)
          through_block(segment, block, key, head, of, room);
    if (of.d_queries.data == room.d_queries.at(0))
      write_rows(of.d_queries.data, 1, into_.q, first, count, head, shape_.head_dim);
  }

  // Rows of one head of queries that products read, and those that they add gradients to.
  struct HeadRows {
    pack::Rows<const Number> queries, d_out;
    pack::Rows<Number> d_queries;
  };

  pack::Rows<const Number> rows_of(const at::Tensor& x, const Segment& segment, int64_t head, int64_t width,
                                   const Scratch<Number>& room) const {
    const auto rows = pack::columns_of<Stored>(x, head, width).from(segment.first);
    if constexpr (std::is_same_v<Stored, Number>)
      if (pack::in_place<Number>(x, width, segment.count)) return {rows.data, rows.row};
    kept_.pack(rows, segment.count, Number{1}, room.at(0));
    return {room.at(0), pack::padded(width)};
  }

  // The gradients themselves, or sums that are written or added to them at the end. The first block of keys
  // that a tile sees sets them; they are 0 where it sees nothing.
  pack::Rows<Number> sums_of(const Segment& segment, int64_t head, Room& room) const {
    pack::Rows<Number> sums{room.d_queries.at(0), width_};
    if (!add_ && pack::in_place<Number>(into_.q, shape_.head_dim, segment.count)) {
      const auto rows = pack::mutable_columns_of<Number>(into_.q, head, shape_.head_dim).from(segment.first);
      sums = {rows.data, rows.row};
    }
    for (const QueryBlock& block : segment.blocks)
      for (const TileRows& rows : block.tiles) {
        if (rows.begin < rows.end) continue;
        const int64_t first = block.first + rows.row - segment.first;
        for (int64_t row = first; row < first + rows.count; ++row)
          std::fill_n(sums.at(row), width_, Number{});
      }
    return sums;
  }

  // key: within the segment.
  void through_block(const Segment& segment, const QueryBlock& block, int64_t key, int64_t head,
                     const HeadRows& of, Room& room) const {
    GradientTile<Number> tile;
    KeyRange clipped[kTileRows];
    tile.seen = clipped;
    tile.head_dim = shape_.head_dim;
    tile.value_dim = shape_.value_dim;
    tile.key_width = width_;
    tile.query_row = of.queries.row;
    tile.d_out_row = of.d_out.row;
    tile.d_query_row = of.d_queries.row;
    tile.cap = static_cast<Number>(shape_.soft_cap);
    tile.keys_by_column = room.keys_by_column.at(key * shape_.head_dim);
    tile.values_by_column = room.values_by_column.at(key * shape_.value_dim);
    tile.keys = room.keys.at(key * width_);
    const Number* const log_sums = log_sums_.const_data_ptr<Number>() + head * log_sums_.size(1);
    for (const TileRows& rows : block.tiles) {
      const int64_t query = block.first + rows.row, row = query - segment.first;
      tile.weights = room.weights.at(rows.row * kBlockKeys);
      tile.gradients = room.gradients.at(rows.row * kBlockKeys);
      if (!pack::clip(seen_ + query, rows, segment.key + key, clipped)) {
        std::fill_n(tile.weights, rows.count * kBlockKeys, Number{});
        std::fill_n(tile.gradients, rows.count * kBlockKeys, Number{});
        continue;
      }
      tile.rows = rows.count;
      tile.queries = of.queries.at(row);
      tile.d_out = of.d_out.at(row);
      tile.log_sums = log_sums + query;
      tile.along = room.along.at(row);
      tile.d_queries = of.d_queries.at(row);
      tile.adds = rows.begin < segment.key + key;
      tile.fetch = room.ahead.next();
      tile.second_fetch = room.ahead.next();
      kernels_.gradients(tile);
    }
    add_to_keys(segment, block, key, of, room);
  }

  // d_values += weights^T d_out and d_keys += gradients^T queries, for a few keys at a time: by the queries
  // of the tiles that see them.
  void add_to_keys(const Segment& segment, const QueryBlock& block, int64_t key, const HeadRows& of,
                   Room& room) const {
    const int64_t keys = std::min(kBlockKeys, segment.keys - key), start = segment.key + key;
    for (int64_t from = 0; from < keys;) {
      int64_t first = block.count, last = 0;
      int64_t to = from;
      for (; to < keys; to += kTileRows) {  // as many keys as the same queries see
        int64_t begin = block.count, end = 0;
        for (const TileRows& rows : block.tiles)
          if (rows.begin < start + to + kTileRows && rows.end > start + to) {
            begin = std::min(begin, rows.row);
            end = rows.row + rows.count;
          }
        if (to == from) first = begin, last = end;
        if (begin != first || end != last) break;
      }
      to = std::min(to, keys);
      if (first < last) {
        const int64_t row = block.first - segment.first + first, depth = last - first;
        kernels_.add_product({room.weights.at(first * kBlockKeys + from), of.d_out.at(row), of.d_out.row,
                              room.d_values.at((key + from) * value_width_), to - from, value_width_, depth});
        kernels_.add_product({room.gradients.at(first * kBlockKeys + from), of.queries.at(row),
                              of.queries.row, room.d_keys.at((key + from) * width_), to - from, width_,
                              depth});
      }
      from = to;
    }
  }

  // Rows [first, first + count) of `to`.
  void write_rows(const Number* from, Number scale, const at::Tensor& to, int64_t first, int64_t count,
                  int64_t head, int64_t width) const {
    of_dtype(to, [&]<class Written>(const pack::RowKernels<Written>& rows) {
      rows.write(from, count, &scale, 0, add_,
                 pack::mutable_columns_of<Written>(to, head, width).from(first));
    });
  }

  // Calls `body` with the kernels of x's dtype: that of log_sums, or of the inputs.
  template <class Body>
  void of_dtype(const at::Tensor& x, const Body& body) const {
    if (x.scalar_type() == log_sums_.scalar_type()) return body(wide_);
    body(kept_);
  }

  const BlockedInputs& in_;
  const BlockedShape& shape_;
  const at::Tensor &d_out_, &out_, &log_sums_;
  const BlockedGradients& into_;
  bool add_;
  const KeyRange* seen_;
  std::vector<Segment> segments_;
  int64_t key_heads_, queries_of_key_, width_, value_width_;
  struct {
    pack::HeadBytes q, k, v, d_out, out, d_q, d_k, d_v;
  } rows_;
  const TileKernels<Number>& kernels_ = tile_kernels<Number>();
  const pack::RowKernels<Stored>& kept_ = pack::row_kernels<Stored>();
  const pack::RowKernels<Number>& wide_ = pack::row_kernels<Number>();
};

}  // namespace

void attend_blocked_backward_cpu(const BlockedInputs& in, const BlockedShape& shape, const at::Tensor& d_out,
                                 const at::Tensor& out, const at::Tensor& log_sums,
                                 const BlockedGradients& into, bool add) {
  pack::check(in, shape);
  pack::run_stored(in.q.scalar_type(), [&]<class Stored>(Stored) {
    AttentionBackward<Stored>(in, shape, d_out, out, log_sums, into, add).run();
  });
}

}  // namespace heddle::model
