// Losses that balance experts: linear in the scores, so that their gradients are constants, and the z-loss.
#include "heddle/nn/router.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/model/autograd_node.h"
#include "lib/nn/cpu/expert_choice_cpu.h"
#include "lib/nn/meta/log_sum_exp.h"

namespace heddle::model {
namespace {

// x [tokens, ...] with zeros for padding.
at::Tensor of_text(const at::Tensor& x, const at::Tensor& padding) {
  if (!padding.defined()) return x;
  return x.masked_fill(x.dim() == 2 ? padding.unsqueeze(1) : padding, 0);
}

// Edge: the scores.
struct WeightedSumNode final : LayerNode {
  WeightedSumNode() : LayerNode("BalanceLossBackward") {}
  at::Tensor factors;  // [rows, experts]
  at::Tensor padding;
  std::vector<int64_t> sizes;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor each = (factors * gradients[0]).unsqueeze(1);
    const int64_t rows = factors.size(0);
    return {of_text(each.expand({rows, sizes[0] / rows, sizes[1]}).reshape(sizes), padding)};
  }
  void release_variables() override {
    factors.reset();
    padding.reset();
  }
};

// Edge: the scores [tokens, experts]; gives their sum over the tokens.
struct ColumnSumNode final : LayerNode {
  ColumnSumNode() : LayerNode("ColumnSumBackward") {}
  std::vector<int64_t> sizes;
  at::Tensor padding;
  Gradients backward(Gradients&& gradients) override {
    return {of_text(gradients[0].expand(sizes), padding)};
  }
  void release_variables() override { padding.reset(); }
};

// Edges: the columns' sums of each layer; gives the sum of factors times all of them.
struct LayersNode final : LayerNode {
  LayersNode() : LayerNode("LayerBalanceBackward") {}
  at::Tensor factors;
  Gradients backward(Gradients&& gradients) override {
    return Gradients(num_outputs(), factors * gradients[0]);
  }
  void release_variables() override { factors.reset(); }
};

at::Tensor column_sums(const at::Tensor& scores, const at::Tensor& padding) {
  return forward_with<ColumnSumNode>(
      [&](ColumnSumNode& node) {
        node.sizes = scores.sizes().vec();
        node.padding = padding;
      },
      [&] { return of_text(scores, padding).sum(0); }, scores);
}

}  // namespace

at::Tensor count_choices(const at::Tensor& chosen, int64_t rows, int64_t experts) {
  const BelowAutograd below;
  const auto options = chosen.options().dtype(at::kFloat);
  if (chosen.is_meta()) return at::zeros({rows, experts}, options);
  if (chosen.is_cpu() && rows > 0) {
    const at::Tensor counts = at::zeros({rows, experts}, options);
    count_choices_cpu(chosen.contiguous(), counts);
    return counts;
  }
  // A column more for choices without an expert.
  const at::Tensor counts = at::zeros({rows, experts + 1}, options);
  const at::Tensor places = at::where(chosen.lt(0), experts, chosen).reshape({rows, -1});
  return counts.scatter_add_(1, places, at::ones(places.sizes(), options)).narrow(1, 0, experts);
}

at::Tensor weighted_sum(const at::Tensor& scores, const at::Tensor& factors, const at::Tensor& padding) {
  return forward_with<WeightedSumNode>(
      [&](WeightedSumNode& node) {
        node.sizes = scores.sizes().vec();
        node.factors = factors;
        node.padding = padding;
      },
      [&] {
        const at::Tensor by_row = of_text(scores, padding).view({factors.size(0), -1, scores.size(1)}).sum(1);
        return (by_row * factors).sum();
      },
      scores);
}

at::Tensor z_loss(const at::Tensor& logits, double factor, const at::Tensor& tokens,
                  const at::Tensor& padding) {
  at::Tensor each;  // the factor of one token
  {
    const BelowAutograd below;
    each = tokens.defined() ? tokens.to(logits.scalar_type()).reshape({}).clamp_min(1).reciprocal() * factor
                            : at::full({}, factor / static_cast<double>(logits.size(0)), logits.options());
  }
  return recomputed("RouterZLossBackward", {logits}, {}, [=](std::span<const at::Tensor> in, bool) {
    return of_text(log_sum_exp(in[0], -1, false).square(), padding).sum() * each;
  });
}

at::Tensor LayerBalance::add(int64_t layer, const at::Tensor& counts, const at::Tensor& tokens,
                             const at::Tensor& scores, const at::Tensor& padding) {
  if (layer == 0) {
    next_ = 0;
    sums_.clear();
    counts_ = at::Tensor();
  }
  if (layer != next_)
    throw Error(ErrorCode::not_built, "the auxiliary loss over all layers",
                "layer " + std::to_string(layer) + " of the mixture " +
                    (next_ == 0 ? "is the first on this rank"
                                : "follows layer " + std::to_string(next_ - 1) + " on this rank"),
                "use router_aux_loss_type: layer where the layers are not on one rank (pp_size above 1), or "
                "where units are run again in a nested backward");
  counts_ = layer == 0 ? counts : counts_ + counts;
  sums_.push_back(column_sums(scores, padding));
  if (++next_ < layers_) return {};
  const at::Tensor of_layers = tokens.clamp_min(1) * static_cast<double>(layers_);
  const at::Tensor factors =
      counts_ * (coefficient_ * static_cast<double>(scores.size(1))) / of_layers.square();
  std::shared_ptr<LayersNode> node;
  const auto trains = [](const at::Tensor& sum) { return sum.requires_grad(); };
  if (at::GradMode::is_enabled() && std::any_of(sums_.begin(), sums_.end(), trains)) {
    node = std::shared_ptr<LayersNode>(new LayersNode(), torch::autograd::deleteNode);
    torch::autograd::edge_list edges;
    for (const at::Tensor& sum : sums_) edges.push_back(edge_to(sum));
    node->set_next_edges(std::move(edges));
    node->factors = factors;
  }
  at::Tensor loss;
  {
    const BelowAutograd below;
    at::Tensor all = sums_[0];
    for (size_t i = 1; i < sums_.size(); ++i) all = all + sums_[i];
    loss = (all * factors).sum();
  }
  if (node) torch::autograd::set_history(loss, node);
  sums_.clear();
  return loss;
}

}  // namespace heddle::model
