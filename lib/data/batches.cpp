// Cuts the samples of one step into this rank's microbatches.
#include "lib/data/batches.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/nn/dropout.h"

namespace heddle {

Batches::Batches(const Rows& rows, BatchSplit split, int64_t vocabulary)
    : rows_(rows), split_(split), vocabulary_(vocabulary) {}

namespace {

// `row`: index of the first row in the step.
at::Tensor draws_of(uint64_t seed, int64_t step, int64_t row, const at::Tensor& tokens) {
  const at::Tensor out = at::empty_like(tokens);
  int64_t* to = out.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < tokens.size(0); ++i)
    for (int64_t j = 0; j < tokens.size(1); ++j) *to++ = model::draw_key(seed, step, row + i, j);
  return out;
}

// Returns the row length of the microbatch whose first sample is at `place`.
int64_t length_of(const Rows& rows, int64_t local_batch, const SampleOrder& order, int64_t place,
                  int64_t end) {
  int64_t longest = 0;
  for (int64_t at = place; at < std::min(place + local_batch, end); ++at)
    longest = std::max(longest, rows.text_tokens(order[at]));
  return rows.length_for(longest);
}

}  // namespace

int64_t computed_tokens(const Rows& rows, const BatchSplit& split, const SampleOrder& order, int64_t begin,
                        int64_t end) {
  const int64_t round = split.local_batch * split.data_ranks;
  const int64_t places = (end - begin + round - 1) / round * round;
  if (!rows.is_ragged()) return places * rows.length();
  int64_t tokens = 0;
  for (int64_t place = begin; place < begin + places; place += split.local_batch)
    tokens += split.local_batch * length_of(rows, split.local_batch, order, place, end);
  return tokens;
}

std::span<const Batch> Batches::read(const SampleOrder& order, int64_t begin, int64_t end,
                                     const StepOfBatch& step) {
  const int64_t round = split_.local_batch * split_.data_ranks;
  const size_t count = static_cast<size_t>((end - begin + round - 1) / round);
  while (batches_.size() < count) {
    Batch& batch = batches_.emplace_back();
    batch.tokens = at::empty({split_.local_batch, rows_.length()}, at::kLong);
    batch.labels = at::empty_like(batch.tokens);
    if (rows_.is_ragged()) whole_.push_back(batch);
  }
  for (size_t i = 0; i < count; ++i) {
    const int64_t place = begin + static_cast<int64_t>(i) * round + split_.data_rank * split_.local_batch;
    if (rows_.is_ragged()) cut(batches_[i], whole_[i], order, place, end);
    fill(batches_[i], order, place, end);
    batches_[i].step = step.step;
    if (step.draw_seed)
      batches_[i].draws = draws_of(*step.draw_seed, step.step, place - begin, batches_[i].tokens);
  }
  return {batches_.data(), count};
}

// Shortens the batch to its longest row: a view of the beginning of memory that fits the maximum length.
void Batches::cut(Batch& batch, const Batch& whole, const SampleOrder& order, int64_t place,
                  int64_t end) const {
  const int64_t length = std::min(length_of(rows_, split_.local_batch, order, place, end),
                                  whole.tokens.size(1));  // read() throws for longer samples
  const auto part = [&](const at::Tensor& x) {
    return x.view({-1}).narrow(0, 0, split_.local_batch * length).view({split_.local_batch, length});
  };
  batch.tokens = part(whole.tokens);
  batch.labels = part(whole.labels);
}

void Batches::fill(Batch& batch, const SampleOrder& order, int64_t place, int64_t end) {
  const int64_t length = batch.tokens.size(1);
  int64_t* tokens = batch.tokens.mutable_data_ptr<int64_t>();
  int64_t* labels = batch.labels.mutable_data_ptr<int64_t>();
  const auto each = static_cast<size_t>(length);
  documents_.clear();
  batch.padding = at::Tensor();
  for (int64_t row = 0; row < split_.local_batch; ++row, tokens += length, labels += length) {
    int64_t text = 0;
    if (place + row < end) {
      try {
        text = rows_.read(order[place + row], vocabulary_,
                          {{tokens, each}, {labels, each}, documents_, row * length});
      } catch (const Error& error) {
        throw Error(error.code(), error.where(),
                    error.message() + " (row " + std::to_string(order[place + row]) + " of the data set)",
                    error.hint());
      }
    } else {
      documents_.push_back(static_cast<int32_t>(row * length));
      std::fill_n(tokens, length, 0);
      std::fill_n(labels, length, Batch::kIgnore);
    }
    if (text == length) continue;
    if (!batch.padding.defined())
      batch.padding = at::zeros(batch.tokens.sizes(), batch.tokens.options().dtype(at::kBool));
    std::fill_n(batch.padding.mutable_data_ptr<bool>() + row * length + text, length - text, true);
  }
  if (!rows_.has_documents()) return;
  documents_.push_back(static_cast<int32_t>(split_.local_batch * length));
  batch.documents = at::empty({static_cast<int64_t>(documents_.size())}, at::kInt);
  std::copy(documents_.begin(), documents_.end(), batch.documents.mutable_data_ptr<int32_t>());
}

}  // namespace heddle
