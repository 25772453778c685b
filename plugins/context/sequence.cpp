// Splits of batches, and ranges of visible keys, from an assignment.
#include "sequence.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace heddle::context {
namespace {

// Counts the tokens of ascending stretches below x, for x that never decreases.
class Below {
 public:
  explicit Below(const std::vector<Stretch>& stretches) : next_(stretches.begin()), end_(stretches.end()) {}
  int64_t count(int64_t x) {
    for (; next_ != end_ && next_->end <= x; ++next_) before_ += next_->end - next_->begin;
    return next_ == end_ ? before_ : before_ + std::max<int64_t>(0, x - next_->begin);
  }

 private:
  std::vector<Stretch>::const_iterator next_, end_;
  int64_t before_ = 0;
};

// Documents of rows after padding.
at::Tensor padded_documents(const Batch& batch, int64_t length) {
  const int64_t rows = batch.tokens.size(0), before = batch.tokens.size(1), more = length - before;
  if (more == 0) return batch.documents.clone();  // a copy: a host may refill its tensor
  const at::Tensor host = batch.documents.to(at::kCPU).contiguous();
  const int32_t* const offsets = host.const_data_ptr<int32_t>();
  std::vector<int32_t> out;
  for (int64_t i = 0; i < host.numel(); ++i) {
    const int64_t row =
        std::min(offsets[i] / before, rows - 1);  // the last offset is the end of the last row
    if (offsets[i] > 0 && offsets[i] % before == 0)
      out.push_back(
          static_cast<int32_t>(offsets[i] + (offsets[i] / before - 1) * more));  // the row's padding begins
    if (i + 1 < host.numel()) out.push_back(static_cast<int32_t>(offsets[i] + row * more));
  }
  out.push_back(static_cast<int32_t>(rows * length));
  const at::Tensor documents = at::empty({static_cast<int64_t>(out.size())}, at::kInt);
  std::copy(out.begin(), out.end(), documents.mutable_data_ptr<int32_t>());
  return documents;
}

}  // namespace

Rows::Rows(int64_t rows, int64_t length, const at::Tensor& documents, int ranks, Cut cut)
    : count_(rows), length_(length), own_(length / ranks) {
  if (!documents.defined()) {
    rows_.push_back({{0, static_cast<int32_t>(length)}, {}});
  } else {
    const at::Tensor host = documents.to(at::kCPU).contiguous();
    const int32_t* const begin = host.const_data_ptr<int32_t>();
    const int32_t* const end = begin + host.numel();
    for (int64_t row = 0; row < rows; ++row) {
      const auto first = static_cast<int32_t>(row * length), last = static_cast<int32_t>(first + length);
      std::vector<int32_t> of_row(std::lower_bound(begin, end, first), std::upper_bound(begin, end, last));
      for (int32_t& offset : of_row) offset -= first;
      rows_.push_back({std::move(of_row), {}});
    }
  }
  for (Row& row : rows_) row.assignment = assign(row.documents, ranks, cut);
}

at::Tensor Rows::columns(const at::Tensor& x, int64_t padding, const Place& place) const {
  const at::Tensor whole =
      x.size(1) == length_ ? x : at::constant_pad_nd(x, {0, length_ - x.size(1)}, padding);
  at::Tensor out = at::empty({count_, own_}, x.options());
  for (int64_t index = 0; index < count_; ++index) {
    int64_t column = 0;
    for (const Stretch& one : row(index).assignment[static_cast<size_t>(place.rank)]) {
      const int64_t count = one.end - one.begin;
      out[index].narrow(0, column, count).copy_(whole[index].narrow(0, one.begin, count));
      column += count;
    }
  }
  const int64_t piece = own_ / place.pieces;
  return place.pieces == 1 ? out : out.narrow(1, place.piece * piece, piece).contiguous();
}

at::Tensor Rows::visible_keys(int rank, int other, const AttentionOptions& options) const {
  const int64_t window = options.window > 0 ? options.window : std::numeric_limits<int32_t>::max();
  at::Tensor seen = at::empty({count_ * own_, 2}, at::kInt);
  int32_t* to = seen.mutable_data_ptr<int32_t>();
  for (int64_t index = 0; index < count_; ++index) {
    const Row& row = this->row(index);
    Below begins(row.assignment[static_cast<size_t>(other)]), ends = begins;
    for (const Stretch& one : row.assignment[static_cast<size_t>(rank)]) {
      const size_t document = document_at(row.documents, one.begin);
      const int64_t first = row.documents[document], last = row.documents[document + 1];
      for (int64_t token = one.begin; token < one.end; ++token, to += 2) {
        const int64_t end = options.causal ? token + 1 : std::min(last, token + window);
        to[0] = static_cast<int32_t>(index * own_ + begins.count(std::max(first, token - window + 1)));
        to[1] = static_cast<int32_t>(index * own_ + ends.count(end));
      }
    }
  }
  return seen;
}

RowOrder Rows::order(int pieces) const {
  const int64_t ranks = length_ / own_, piece = own_ / pieces;
  RowOrder out{at::empty({count_ * length_}, at::kLong), at::empty({count_ * length_}, at::kLong)};
  int64_t* const whole = out.whole.mutable_data_ptr<int64_t>();
  int64_t* const parts = out.parts.mutable_data_ptr<int64_t>();
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (int64_t index = 0; index < count_; ++index) {
      int64_t column = 0;  // index among the columns of the rank's pieces
      for (const Stretch& one : row(index).assignment[static_cast<size_t>(rank)])
        for (int64_t token = one.begin; token < one.end; ++token, ++column) {
          const int64_t place = rank * pieces + column / piece;
          const int64_t from = (place * count_ + index) * piece + column % piece;
          whole[index * length_ + token] = from;
          parts[from] = index * length_ + token;
        }
    }
  return out;
}

int64_t padded_length(const Batch& batch, const Place& place) {
  const bool chunks = place.cut == Cut::balanced && !batch.documents.defined();
  const int64_t by = place.ranks * (chunks ? std::lcm(2, place.pieces) : place.pieces);
  return (batch.tokens.size(1) + by - 1) / by * by;
}

void cut(Batch& batch, const Place& place) {
  check_documents(batch);
  const at::Tensor positions = positions_of(batch);
  if (place.pads_apart && padded_length(batch, place) != batch.tokens.size(1) && !batch.documents.defined())
    batch.documents =
        at::arange(0, batch.tokens.numel() + 1, batch.tokens.size(1), batch.tokens.options().dtype(at::kInt));
  const int64_t length = padded_length(batch, place);
  if (length != batch.tokens.size(1) && !batch.padding.defined())
    batch.padding = at::zeros(batch.tokens.sizes(), batch.tokens.options().dtype(at::kBool));
  if (batch.documents.defined()) batch.documents = padded_documents(batch, length);
  const Rows rows(batch.tokens.size(0), length, batch.documents, place.ranks, place.cut);
  batch.tokens = rows.columns(batch.tokens, 0, place);
  batch.positions = rows.columns(positions, 0, place);
  if (batch.labels.defined()) batch.labels = rows.columns(batch.labels, Batch::kIgnore, place);
  if (batch.padding.defined()) batch.padding = rows.columns(batch.padding, 1, place);
  if (batch.draws.defined()) batch.draws = rows.columns(batch.draws, 0, place);
  batch.whole_sequence = length;
}

Rows rows_of(const Batch& batch, const Place& place) {
  return Rows(batch.tokens.size(0), whole_sequence_of(batch), batch.documents, place.ranks, place.cut);
}

}  // namespace heddle::context
