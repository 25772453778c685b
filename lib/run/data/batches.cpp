// Cuts the samples of one step into this rank's microbatches.
#include "lib/run/data/batches.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace heddle {

Batches::Batches(const TokenDataset& dataset, BatchSplit split, int64_t vocabulary)
    : dataset_(dataset), split_(split), vocabulary_(vocabulary) {}

std::span<const Batch> Batches::read(const SampleOrder& order, int64_t begin, int64_t end) {
  const int64_t round = split_.local_batch * split_.data_ranks;
  const size_t count = static_cast<size_t>((end - begin + round - 1) / round);
  while (batches_.size() < count) {
    Batch& batch = batches_.emplace_back();
    batch.tokens = at::empty({split_.local_batch, dataset_.sequence_length()}, at::kLong);
    batch.labels = at::empty_like(batch.tokens);
  }
  for (size_t i = 0; i < count; ++i)
    fill(batches_[i], order, begin + static_cast<int64_t>(i) * round + split_.data_rank * split_.local_batch,
         end);
  return {batches_.data(), count};
}

void Batches::fill(Batch& batch, const SampleOrder& order, int64_t place, int64_t end) {
  const int64_t length = dataset_.sequence_length();
  int64_t* tokens = batch.tokens.mutable_data_ptr<int64_t>();
  int64_t* labels = batch.labels.mutable_data_ptr<int64_t>();
  const auto each = static_cast<size_t>(length);
  documents_.clear();
  batch.padding = at::Tensor();
  for (int64_t row = 0; row < split_.local_batch; ++row, tokens += length, labels += length) {
    int64_t text = 0;
    if (place + row < end) {
      text = dataset_.read(order[place + row], vocabulary_,
                           {{tokens, each}, {labels, each}, documents_, row * length});
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
  if (!dataset_.has_documents()) return;
  documents_.push_back(static_cast<int32_t>(split_.local_batch * length));
  batch.documents = at::empty({static_cast<int64_t>(documents_.size())}, at::kInt);
  std::copy(documents_.begin(), documents_.end(), batch.documents.mutable_data_ptr<int32_t>());
}

}  // namespace heddle
