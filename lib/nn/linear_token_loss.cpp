// Cross entropy by blocks of rows, straight from hidden states and the head's weight.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

#include "heddle/model/autocast.h"
#include "heddle/model/autograd_node.h"
#include "heddle/nn/device_ops.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/token_loss.h"
#include "lib/nn/soft_cap.h"
#include "lib/nn/token_loss_rows.h"

namespace heddle::model {
namespace {

struct LinearTokenLossNode final : LayerNode {
  LinearTokenLossNode() : LayerNode("LinearTokenLossBackward") {}
  Saved d_hidden, d_weight;  // of the loss sum

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor& scale = gradients[0];
    Gradients out(2);
    if (task_should_compute_output(0)) out[0] = scaled(d_hidden.unpack(), scale);
    if (task_should_compute_output(1)) out[1] = scaled(d_weight.unpack(), scale);
    release_variables();  // scaled in place: good for one backward
    return out;
  }
  static at::Tensor scaled(at::Tensor x, const at::Tensor& by) {
    const auto kernel = device_kernel(&DeviceOps::scale, x);
    const bool done = kernel != nullptr && kernel(x, by);
    return done ? x : x.mul_(by);
  }
  void release_variables() override {
    d_hidden.reset();
    d_weight.reset();
  }
};

// sum += a^T b; several blocks of 16-bit numbers are summed wide.
void add_product(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, at::ScalarType wide_dtype) {
  if (!sum.defined()) return void(sum = matrix_product(a.t(), b));
  if (a.scalar_type() == wide_dtype) return add_matrix_product(sum, a.t(), b);
  sum = sum.to(wide_dtype);
  const auto kernel = device_kernel(&DeviceOps::add_product, a);
  const bool done = kernel != nullptr && kernel(sum, a.t(), b);
  if (!done) sum.add_(matrix_product(a.t(), b));
}

struct LinearLoss {
  at::Tensor sum, d_hidden, d_weight;
};

struct LossOptions {
  const VocabularyPart* part = nullptr;  // null: the weight is the whole head
  double soft_cap = 0;
};

// Adds the loss of a block to `sum`; the gradient of its logits, in their dtype, undefined if it is not
// wanted.
at::Tensor block_gradient(at::Tensor logits, const Labels& wanted, const LossOptions& options,
                          bool with_gradient, const at::Tensor& sum) {
  const bool whole = options.part == nullptr;
  const at::Tensor loss =
      whole ? loss_on_device(logits, wanted, options.soft_cap, with_gradient) : at::Tensor();
  if (loss.defined()) {
    sum.add_(loss);
    return with_gradient ? logits : at::Tensor();
  }
  const at::ScalarType narrow = logits.scalar_type();
  SoftCap cap(options.soft_cap);
  logits = cap.apply(logits.to(wide(narrow)));
  BlockLoss block =
      whole ? loss_of(logits, wanted) : loss_of(std::move(logits), wanted, *options.part->ranks);
  sum.add_(block.sum);
  if (!with_gradient) return {};
  return cap.back(logit_gradient(std::move(block.log_p), wanted)).to(narrow);
}

LinearLoss loss_and_gradients(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                              const LossOptions& options, bool of_hidden, bool of_weight) {
  const VocabularyPart* part = options.part;
  const at::ScalarType dtype = wide(hidden.scalar_type());
  const Labels all = part == nullptr ? read_labels(labels, weight.size(0), dtype)
                                     : read_labels(labels, *part, weight.size(0), dtype);
  const int64_t columns = part == nullptr ? weight.size(0) : columns_of(*part);
  const int64_t tokens = hidden.size(0), step = rows_per_block(hidden, columns, part == nullptr);
  LinearLoss out{at::zeros({1}, hidden.options().dtype(dtype)), {}, {}};
  if (of_hidden) out.d_hidden = at::empty_like(hidden);
  for (int64_t row = 0; row < tokens; row += step) {
    const int64_t rows = std::min(step, tokens - row);
    const at::Tensor input = hidden.narrow(0, row, rows);
    const Labels wanted = all.block(row, rows);
    const at::Tensor d_logits =
        block_gradient(matrix_product(input, weight.t()), wanted, options, of_hidden || of_weight, out.sum);
    if (!d_logits.defined()) continue;
    if (of_hidden) matrix_product_into(out.d_hidden.narrow(0, row, rows), d_logits, weight);
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

at::Tensor linear_token_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                             double soft_cap) {
  return recorded(linear_loss(hidden, weight, labels, {nullptr, soft_cap}), hidden, weight);
}

at::Tensor linear_token_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                             const VocabularyPart& part, double soft_cap) {
  return recorded(linear_loss(hidden, weight, labels, {&part, soft_cap}), hidden, weight);
}

}  // namespace heddle::model
