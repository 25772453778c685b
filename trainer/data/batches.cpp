// Cuts the samples of one step into this rank's microbatches.
#include "trainer/data/batches.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

namespace heddle {

Batches::Batches(const TokenDataset& dataset, BatchSplit split, int64_t vocabulary)
    : dataset_(dataset), split_(split), vocabulary_(vocabulary), sample_(dataset.sequence_length() + 1) {}

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
  for (int64_t row = 0; row < split_.local_batch; ++row, tokens += length, labels += length) {
    if (place + row < end) {
      dataset_.read(order[place + row], vocabulary_, sample_);
      std::copy_n(sample_.begin(), length, tokens);
      std::copy_n(sample_.begin() + 1, length, labels);
    } else {
      std::fill_n(tokens, length, 0);
      std::fill_n(labels, length, Batch::kIgnore);
    }
  }
  if (dataset_.document_end()) find_documents(batch);
}

// The token that ends a document is its last.
void Batches::find_documents(Batch& batch) {
  const int64_t length = dataset_.sequence_length(), count = batch.tokens.numel();
  const int64_t* const tokens = batch.tokens.const_data_ptr<int64_t>();
  documents_.assign(1, 0);
  for (int64_t i = 1; i < count; ++i)
    if (i % length == 0 || tokens[i - 1] == *dataset_.document_end())
      documents_.push_back(static_cast<int32_t>(i));
  documents_.push_back(static_cast<int32_t>(count));
  batch.documents = at::empty({static_cast<int64_t>(documents_.size())}, at::kInt);
  std::copy(documents_.begin(), documents_.end(), batch.documents.mutable_data_ptr<int32_t>());
}

}  // namespace heddle
