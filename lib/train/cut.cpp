// Rows to microbatches, for every tensor of the batch.
#include "lib/train/cut.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/any.h>

#include "core/schedule/microbatches.h"

namespace heddle::train {
namespace {

const at::Tensor& rows_tensor(const Batch& batch) {
  return batch.labels.defined() ? batch.labels : batch.tokens;
}

at::Tensor rows_of(const at::Tensor& tensor, const Cut& cut, int index) {
  return tensor.narrow(0, index * cut.rows, cut.rows);
}

// Foreign models need not have a row of `extra` for each sample.
bool has_row_for_each(const at::Tensor& tensor, const Batch& batch) {
  return tensor.dim() > 0 && tensor.size(0) == rows_tensor(batch).size(0);
}

}  // namespace

int microbatches_of(const Batch& batch, const Pipeline& pipeline) {
  const at::Tensor& tensor = rows_tensor(batch);
  if (pipeline.schedule == nullptr || !tensor.defined() || tensor.dim() == 0) return 1;
  return schedule::count_microbatches(tensor.size(0), pipeline.config);
}

int64_t microbatches_with_text(const Batch& batch, const Pipeline& pipeline) {
  const int microbatches = microbatches_of(batch, pipeline);
  if (!batch.padding.defined() || batch.padding.is_meta()) return microbatches;
  const at::Tensor text = batch.padding.to(at::kCPU).reshape({microbatches, -1}).logical_not();
  return text.any(1).sum().item<int64_t>();
}

Cut cut_of(const Batch& batch, const Pipeline& pipeline) {
  check_documents(batch);
  check_padding(batch);
  Cut cut{microbatches_of(batch, pipeline)};
  if (cut.microbatches == 1) return cut;
  cut.rows = pipeline.config.microbatch_size;
  if (batch.documents.defined())
    for (int i = 0; i < cut.microbatches; ++i)
      cut.documents.push_back(
          documents_of_rows(batch.documents, i * cut.rows, cut.rows, whole_sequence_of(batch)));
  return cut;
}

Batch microbatch_of(const Batch& batch, const Cut& cut, int index) {
  if (cut.rows == 0) return batch;
  Batch part = batch;
  for (const BatchMember& member : kBatchMembers) {
    at::Tensor& tensor = part.*member.tensor;
    if (!tensor.defined()) continue;
    if (member.cut == RowCut::documents)
      tensor = cut.documents[index].to(tensor.device(), /*non_blocking=*/true);
    else if (member.cut == RowCut::rows || has_row_for_each(tensor, batch))
      tensor = rows_of(tensor, cut, index);
  }
  return part;
}

}  // namespace heddle::train
