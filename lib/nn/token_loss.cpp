// Cross entropy of logits, by blocks of rows.
#include "heddle/nn/token_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "heddle/model/autograd_node.h"
#include "heddle/nn/device_ops.h"
#include "lib/nn/meta/log_sum_exp.h"
#include "lib/nn/soft_cap.h"
#include "lib/nn/token_loss_rows.h"

namespace heddle {
namespace model {
namespace {

struct TokenLossNode final : LayerNode {
  TokenLossNode() : LayerNode("TokenLossBackward") {}
  Saved logits;
  double soft_cap = 0;
  Labels labels;     // a few numbers a row
  at::Tensor log_z;  // of a split vocabulary: wide [tokens, 1]

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor saved = logits.unpack();
    at::Tensor out = at::empty_like(saved);
    const at::ScalarType dtype = wide(saved.scalar_type());
    const int64_t step = rows_per_block(saved, saved.size(1), !log_z.defined());
    for (int64_t row = 0; row < saved.size(0); row += step) {
      const int64_t rows = std::min(step, saved.size(0) - row);
      if (on_device(saved.narrow(0, row, rows), labels.block(row, rows), out.narrow(0, row, rows),
                    gradients[0]))
        continue;
      SoftCap cap(soft_cap);
      const at::Tensor capped = cap.apply(saved.narrow(0, row, rows).to(dtype));
      at::Tensor log_p =
          log_z.defined() ? capped - log_z.narrow(0, row, rows) : at::_log_softmax(capped, 1, false);
      const at::Tensor block = cap.back(logit_gradient(std::move(log_p), labels.block(row, rows)));
      out.narrow(0, row, rows).copy_(block * gradients[0]);
    }
    return {out};
  }
  bool on_device(const at::Tensor& block, const Labels& wanted, const at::Tensor& out,
                 const at::Tensor& scale) {
    if (log_z.defined() || device_kernel(&DeviceOps::token_loss, block) == nullptr) return false;
    out.copy_(block);
    const bool done = loss_on_device(out, wanted, soft_cap, true).defined();
    if (!done) return false;
    const auto kernel = device_kernel(&DeviceOps::scale, out);
    if (kernel == nullptr || !kernel(out, scale)) out.mul_(scale);
    return true;
  }
  void release_variables() override {
    logits.reset();
    labels = {};
    log_z.reset();
  }
};

at::Tensor recorded(at::Tensor sum, const at::Tensor& logits, Labels labels, double soft_cap,
                    at::Tensor log_z = {}) {
  if (!torch::autograd::compute_requires_grad(logits)) return sum;
  auto node = make_node<TokenLossNode>(logits);
  node->logits.save(logits);
  node->labels = std::move(labels);
  node->soft_cap = soft_cap;
  node->log_z = std::move(log_z);
  torch::autograd::set_history(sum, node);
  return sum;
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
    const int64_t step = rows_per_block(logits, logits.size(1), true);
    for (int64_t row = 0; row < logits.size(0); row += step) {
      const int64_t rows = std::min(step, logits.size(0) - row);
      const at::Tensor here =
          loss_on_device(logits.narrow(0, row, rows), all.block(row, rows), soft_cap, false);
      if (here.defined()) {
        sum.add_(here);
        continue;
      }
      const at::Tensor block = SoftCap(soft_cap).apply(logits.narrow(0, row, rows).to(dtype));
      const at::Tensor loss = log_sum_exp(block, 1, true) - block.gather(1, all.index.narrow(0, row, rows));
      sum.add_((loss * all.counted.narrow(0, row, rows)).sum());
    }
  }
  return recorded(std::move(sum), logits, std::move(all), soft_cap);
}

at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& labels, const VocabularyPart& part,
                      double soft_cap) {
  at::Tensor sum, log_z;
  Labels all;
  {
    const BelowAutograd below;
    const at::ScalarType dtype = wide(logits.scalar_type());
    all = read_labels(labels, part, logits.size(1), dtype);
    sum = at::zeros({1}, logits.options().dtype(dtype));
    log_z = at::empty({logits.size(0), 1}, sum.options());
    const int64_t step = rows_per_block(logits, columns_of(part), false);
    for (int64_t row = 0; row < logits.size(0); row += step) {
      const int64_t rows = std::min(step, logits.size(0) - row);
      const at::Tensor wide_copy = logits.narrow(0, row, rows).to(dtype, false, true);
      const BlockLoss block = loss_of(SoftCap(soft_cap).apply(wide_copy), all.block(row, rows), *part.ranks);
      sum.add_(block.sum);
      log_z.narrow(0, row, rows).copy_(block.log_z);
    }
  }
  return recorded(std::move(sum), logits, std::move(all), soft_cap, std::move(log_z));
}

}  // namespace model

}  // namespace heddle
