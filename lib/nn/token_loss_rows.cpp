// Labels, and the loss of a block of rows.
#include "lib/nn/token_loss_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>

#include <algorithm>
#include <string>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/model/batch.h"
#include "heddle/nn/device_ops.h"
#include "lib/nn/meta/recorded_kernels.h"

namespace heddle::model {
namespace {

// Logits of one block: 16 MiB in fp32, which caches hold; 512 MiB on a device, which many rows keep busy: in
// fp32, or in bf16 where its kernel reads those.
constexpr int64_t kBlockNumbers = int64_t{1} << 22, kDeviceBlockNumbers = int64_t{1} << 27;

void check_labels(const at::Tensor& column, int64_t vocabulary) {
  const int64_t* label = column.const_data_ptr<int64_t>();
  for (const int64_t* end = label + column.numel(); label != end; ++label)
    if (*label != Batch::kIgnore && (*label < 0 || *label >= vocabulary))
      throw Error(
          ErrorCode::input, "loss",
          "label " + std::to_string(*label) + " is outside the vocabulary of " + std::to_string(vocabulary),
          "use a token file and a model of the same tokenizer");
}

}  // namespace

at::ScalarType wide(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

int64_t rows_per_block(const at::Tensor& rows, int64_t vocabulary, bool whole) {
  const bool is_narrow =
      whole && rows.scalar_type() == at::kBFloat16 && device_kernel(&DeviceOps::token_loss, rows) != nullptr;
  const int64_t numbers = computes_on_cpu(rows) ? kBlockNumbers
                          : is_narrow           ? 2 * kDeviceBlockNumbers
                                                : kDeviceBlockNumbers;
  return std::max<int64_t>(32, numbers / std::max<int64_t>(1, vocabulary));
}

Labels read_labels(const at::Tensor& labels, int64_t vocabulary, at::ScalarType dtype) {
  const at::Tensor column = labels.reshape({-1, 1});
  if (column.is_cpu()) check_labels(column, vocabulary);
  const at::Tensor counts = column.ne(Batch::kIgnore);
  const at::Tensor counted = counts.to(dtype);
  return {counted, column * counts, at::full({1, 1}, -1.0, counted.options()).expand_as(counted)};
}

// Reads the labels of the columns [first, first + held) only.
Labels read_labels(const at::Tensor& labels, const VocabularyPart& part, int64_t held, at::ScalarType dtype) {
  Labels all = read_labels(labels, part.whole, dtype);
  const at::Tensor local = all.index - part.first;
  const at::Tensor here = local.ge(0).bitwise_and_(local.lt(held));
  all.index = local * here;
  all.hit = here.to(dtype).neg_();
  return all;
}

// Converts log-probabilities to the gradient of the block's loss with respect to its logits.
at::Tensor logit_gradient(at::Tensor log_p, const Labels& labels) {
  log_p.exp_();
  log_p.scatter_add_(1, labels.index, labels.hit);
  return log_p.mul_(labels.counted);
}

BlockLoss loss_of(const at::Tensor& logits, const Labels& labels) {
  at::Tensor log_p = at::_log_softmax(logits, 1, false);
  at::Tensor sum = (log_p.gather(1, labels.index) * labels.counted).sum().neg_();
  return {std::move(log_p), std::move(sum)};
}

at::Tensor loss_on_device(const at::Tensor& logits, const Labels& labels, double soft_cap,
                          bool with_gradient) {
  const auto kernel = device_kernel(&DeviceOps::token_loss, logits);
  if (kernel == nullptr) return {};
  const at::Tensor losses = at::empty({logits.size(0)}, labels.counted.options());
  const bool done = kernel(logits, labels.index, labels.counted, soft_cap, with_gradient, losses);
  return done ? losses.sum() : at::Tensor();
}

// Every rank adds the same numbers in the same order, so all get the same bits.
BlockLoss loss_of(at::Tensor logits, const Labels& labels, Communicator& ranks) {
  const at::Tensor largest = logits.amax(1, true);
  const at::Tensor sum = (logits - largest).exp_().sum(1, true);
  const at::Tensor target = logits.gather(1, labels.index) * labels.hit.neg();
  const at::Tensor mine = at::cat({largest, sum, target}, 1);
  at::Tensor all = at::empty({ranks.size(), mine.size(0), 3}, mine.options());
  ranks.all_gather(all, mine)->wait();
  const at::Tensor peaks = all.select(2, 0), peak = peaks.amax(0);
  const at::Tensor log_z = (all.select(2, 1) * (peaks - peak).exp_()).sum(0).log_().add_(peak).unsqueeze(1);
  at::Tensor loss = ((log_z - all.select(2, 2).sum(0).unsqueeze(1)) * labels.counted).sum();
  return {logits.sub_(log_z), std::move(loss), log_z};
}

// Blocks are the same on every rank, also where the vocabulary does not divide.
int64_t columns_of(const VocabularyPart& part) {
  return (part.whole + part.ranks->size() - 1) / part.ranks->size();
}

}  // namespace heddle::model
