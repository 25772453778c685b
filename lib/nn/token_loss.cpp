// Cross entropy by blocks of rows, from logits or straight from hidden states and the head's weight.
#include "heddle/nn/token_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <string>

#include "heddle/base/error.h"
#include "heddle/model/autocast.h"
#include "heddle/model/autograd_node.h"
#include "heddle/model/batch.h"
#include "heddle/nn/linear.h"
#include "lib/nn/soft_cap.h"

namespace heddle {
namespace model {
namespace {

// fp32 logits of one block: 16 MiB, which caches hold; 512 MiB on a device, which many rows keep busy.
constexpr int64_t kBlockNumbers = int64_t{1} << 22, kDeviceBlockNumbers = int64_t{1} << 27;

at::ScalarType wide(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

int64_t rows_per_block(const at::Tensor& rows, int64_t vocabulary) {
  const int64_t numbers = rows.is_cpu() ? kBlockNumbers : kDeviceBlockNumbers;
  return std::max<int64_t>(32, numbers / std::max<int64_t>(1, vocabulary));
}

struct Labels {
  at::Tensor counted;  // wide [tokens, 1]: 1 if the label counts
  at::Tensor index;    // int64 [tokens, 1]: the label's column, 0 if it does not count or is on another rank
  at::Tensor hit;      // wide [tokens, 1]: -1; 0 if the label's column is on another rank
  Labels block(int64_t row, int64_t rows) const {
    return {counted.narrow(0, row, rows), index.narrow(0, row, rows), hit.narrow(0, row, rows)};
  }
};

void check_labels(const at::Tensor& column, int64_t vocabulary) {
  const int64_t* label = column.const_data_ptr<int64_t>();
  for (const int64_t* end = label + column.numel(); label != end; ++label)
    if (*label != Batch::kIgnore && (*label < 0 || *label >= vocabulary))
      throw Error(
          ErrorCode::input, "loss",
          "label " + std::to_string(*label) + " is outside the vocabulary of " + std::to_string(vocabulary),
          "use a token file and a model of the same tokenizer");
}

Labels read_labels(const at::Tensor& labels, int64_t vocabulary, at::ScalarType dtype) {
  const at::Tensor column = labels.reshape({-1, 1});
  if (column.is_cpu()) check_labels(column, vocabulary);
  const at::Tensor counts = column.ne(Batch::kIgnore);
  const at::Tensor counted = counts.to(dtype);
  return {counted, column * counts, at::full({1, 1}, -1.0, counted.options()).expand_as(counted)};
}

// Of the columns [first, first + held) only.
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

struct TokenLossNode final : LayerNode {
  TokenLossNode() : LayerNode("TokenLossBackward") {}
  Saved logits;
  double soft_cap = 0;
  Labels labels;  // a few numbers a row

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor saved = logits.unpack();
    at::Tensor out = at::empty_like(saved);
    const at::ScalarType dtype = wide(saved.scalar_type());
    const int64_t step = rows_per_block(saved, saved.size(1));
    for (int64_t row = 0; row < saved.size(0); row += step) {
      const int64_t rows = std::min(step, saved.size(0) - row);
      SoftCap cap(soft_cap);
      const at::Tensor block =
          cap.back(logit_gradient(at::_log_softmax(cap.apply(saved.narrow(0, row, rows).to(dtype)), 1, false),
                                  labels.block(row, rows)));
      out.narrow(0, row, rows).copy_(block * gradients[0]);
    }
    return {out};
  }
  void release_variables() override {
    logits.reset();
    labels = {};
  }
};

struct LinearTokenLossNode final : LayerNode {
  LinearTokenLossNode() : LayerNode("LinearTokenLossBackward") {}
  Saved d_hidden, d_weight;  // of the loss sum

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor& scale = gradients[0];
    Gradients out(2);
    if (task_should_compute_output(0)) out[0] = d_hidden.unpack().mul_(scale);
    if (task_should_compute_output(1)) out[1] = d_weight.unpack().mul_(scale);
    release_variables();  // scaled in place: good for one backward
    return out;
  }
  void release_variables() override {
    d_hidden.reset();
    d_weight.reset();
  }
};

// sum += a^T b; several blocks of 16-bit numbers are summed wide.
void add_product(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, at::ScalarType wide_dtype) {
  if (!sum.defined())
    sum = matrix_product(a.t(), b);
  else if (a.scalar_type() == wide_dtype)
    add_matrix_product(sum, a.t(), b);
  else
    sum = sum.to(wide_dtype).add_(matrix_product(a.t(), b));
}

// The log-probabilities of a block and the sum of its losses.
struct BlockLoss {
  at::Tensor log_p, sum;
};

BlockLoss loss_of(const at::Tensor& logits, const Labels& labels) {
  at::Tensor log_p = at::_log_softmax(logits, 1, false);
  at::Tensor sum = (log_p.gather(1, labels.index) * labels.counted).sum().neg_();
  return {std::move(log_p), std::move(sum)};
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
  return {logits.sub_(log_z), std::move(loss)};
}

struct LinearLoss {
  at::Tensor sum, d_hidden, d_weight;
};

struct LossOptions {
  const VocabularyPart* part = nullptr;  // null: the weight is the whole head
  double soft_cap = 0;
};

LinearLoss loss_and_gradients(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                              const LossOptions& options, bool of_hidden, bool of_weight) {
  const VocabularyPart* part = options.part;
  const at::ScalarType dtype = wide(hidden.scalar_type());
  const Labels all = part == nullptr ? read_labels(labels, weight.size(0), dtype)
                                     : read_labels(labels, *part, weight.size(0), dtype);
  // Blocks are the same on every rank, also where the vocabulary does not divide.
  const int64_t columns =
      part == nullptr ? weight.size(0) : (part->whole + part->ranks->size() - 1) / part->ranks->size();
  const int64_t tokens = hidden.size(0), step = rows_per_block(hidden, columns);
  LinearLoss out{at::zeros({1}, hidden.options().dtype(dtype)), {}, {}};
  if (of_hidden) out.d_hidden = at::empty_like(hidden);
  for (int64_t row = 0; row < tokens; row += step) {
    const int64_t rows = std::min(step, tokens - row);
    const at::Tensor input = hidden.narrow(0, row, rows);
    const Labels wanted = all.block(row, rows);
    SoftCap cap(options.soft_cap);
    at::Tensor logits = cap.apply(matrix_product(input, weight.t()).to(dtype));
    BlockLoss block =
        part == nullptr ? loss_of(logits, wanted) : loss_of(std::move(logits), wanted, *part->ranks);
    out.sum.add_(block.sum);
    if (!of_hidden && !of_weight) continue;
    const at::Tensor d_logits =
        cap.back(logit_gradient(std::move(block.log_p), wanted)).to(hidden.scalar_type());
    if (of_hidden) {
      matrix_product_into(out.d_hidden.narrow(0, row, rows), d_logits, weight);
    }
    if (of_weight) add_product(out.d_weight, d_logits, input, dtype);
  }
  if (of_weight && !out.d_weight.defined()) out.d_weight = at::zeros_like(weight);
  return out;
}

LinearLoss linear_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                       const LossOptions& options) {
  const Region* region = Region::active();
  const bool recording = at::GradMode::is_enabled() && (region == nullptr || !region->drops_values());
  const bool of_hidden = recording && hidden.requires_grad(), of_weight = recording && weight.requires_grad();
  const BelowAutograd below;
  Autocast* autocast = Autocast::active();
  LinearLoss out = autocast == nullptr
                       ? loss_and_gradients(hidden, weight, labels, options, of_hidden, of_weight)
                       : loss_and_gradients(autocast->value(hidden), autocast->weight(weight), labels,
                                            options, of_hidden, of_weight);
  if (of_hidden) out.d_hidden = out.d_hidden.to(hidden.scalar_type());
  if (of_weight) out.d_weight = out.d_weight.to(weight.scalar_type());
  return out;
}

at::Tensor recorded(LinearLoss loss, const at::Tensor& hidden, const at::Tensor& weight) {
  if (!torch::autograd::compute_requires_grad(hidden, weight)) return loss.sum;
  auto node = make_node<LinearTokenLossNode>(hidden, weight);
  node->d_hidden.save(loss.d_hidden);
  node->d_weight.save(loss.d_weight);
  torch::autograd::set_history(loss.sum, node);
  return loss.sum;
}

}  // namespace

at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& labels, double soft_cap) {
  at::Tensor sum;
  Labels all;
  {
    const BelowAutograd below;
    const at::ScalarType dtype = wide(logits.scalar_type());
    all = read_labels(labels, logits.size(1), dtype);
    sum = at::zeros({1}, logits.options().dtype(dtype));
    const int64_t step = rows_per_block(logits, logits.size(1));
    for (int64_t row = 0; row < logits.size(0); row += step) {
      const int64_t rows = std::min(step, logits.size(0) - row);
      const at::Tensor block = SoftCap(soft_cap).apply(logits.narrow(0, row, rows).to(dtype));
      const at::Tensor loss = at::logsumexp(block, 1, true) - block.gather(1, all.index.narrow(0, row, rows));
      sum.add_((loss * all.counted.narrow(0, row, rows)).sum());
    }
  }
  if (torch::autograd::compute_requires_grad(logits)) {
    auto node = make_node<TokenLossNode>(logits);
    node->logits.save(logits);
    node->labels = std::move(all);
    node->soft_cap = soft_cap;
    torch::autograd::set_history(sum, node);
  }
  return sum;
}

at::Tensor linear_token_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                             double soft_cap) {
  return recorded(linear_loss(hidden, weight, labels, {nullptr, soft_cap}), hidden, weight);
}

at::Tensor linear_token_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                             const VocabularyPart& part, double soft_cap) {
  return recorded(linear_loss(hidden, weight, labels, {&part, soft_cap}), hidden, weight);
}

}  // namespace model

}  // namespace heddle
