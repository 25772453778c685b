// Rows to microbatches, on dim 0 of every tensor of the batch.
#include "heddle/train/cut.h"

#include "heddle/schedule/microbatches.h"

namespace heddle::train {
namespace {

const at::Tensor& rows_tensor(const Batch& batch) {
  return batch.labels.defined() ? batch.labels : batch.tokens;
}

at::Tensor rows_of(const at::Tensor& tensor, const Cut& cut, int index) {
  return tensor.defined() ? tensor.narrow(0, index * cut.rows, cut.rows) : tensor;
}

}  // namespace

Cut cut_of(const Batch& batch, const Pipeline& pipeline) {
  const at::Tensor& tensor = rows_tensor(batch);
  if (pipeline.schedule == nullptr || !tensor.defined() || tensor.dim() == 0) return {};
  const int microbatches = schedule::count_microbatches(tensor.size(0), pipeline.words);
  return {microbatches, microbatches == 1 ? 0 : pipeline.words.microbatch_size};
}

Batch microbatch_of(const Batch& batch, const Cut& cut, int index) {
  if (cut.rows == 0) return batch;
  Batch part;
  part.tokens = rows_of(batch.tokens, cut, index);
  part.labels = rows_of(batch.labels, cut, index);
  part.positions = rows_of(batch.positions, cut, index);
  const at::Tensor& extra = batch.extra;  // not all foreign models have a row of it for each sample
  const bool by_rows = extra.defined() && extra.dim() > 0 && extra.size(0) == rows_tensor(batch).size(0);
  part.extra = by_rows ? rows_of(extra, cut, index) : extra;
  return part;
}

}  // namespace heddle::train
