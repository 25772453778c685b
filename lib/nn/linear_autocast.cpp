// Products and their gradients are of the lower dtype; outputs of the node have the dtype of the inputs.
#include "lib/nn/linear_autocast.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sum.h>

#include <utility>
#include <vector>

#include "heddle/model/autograd_node.h"
#include "heddle/model/region.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/weight_gradients.h"

namespace heddle::model {
namespace {

using torch::autograd::Edge;

// Edges: x, then weight and bias of each layer, then the residual.
struct AutocastLinearNode final : LayerNode {
  AutocastLinearNode() : LayerNode("AutocastLinearBackward") {}
  Saved x;  // cast
  c10::SmallVector<Saved, 3> weights;
  at::ScalarType x_dtype{}, weight_dtype{}, residual_dtype{};
  Autocast* autocast = nullptr;
  WeightGradients* later = nullptr;

  Gradients backward(Gradients&& gradients) override {
    Gradients out(num_outputs());
    const at::Tensor saved_x = x.unpack(), rows = rows_of(saved_x);
    at::Tensor dx;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const at::Tensor dy = in_dtype(rows_of(gradients[i]), rows.scalar_type());
      if (!put_off(i, dy, rows)) {
        if (task_should_compute_output(1 + 2 * i))
          out[1 + 2 * i] = in_dtype(matrix_product(dy.t(), rows), weight_dtype);
        if (task_should_compute_output(2 + 2 * i)) out[2 + 2 * i] = in_dtype(dy.sum(0), weight_dtype);
      }
      if (!task_should_compute_output(0)) continue;
      const at::Tensor weight = autocast->weight(weights[i].unpack());
      if (dx.defined())
        add_matrix_product(dx, dy, weight);
      else
        dx = matrix_product(dy, weight);
    }
    if (dx.defined()) out[0] = in_dtype(saved_x.dim() == 2 ? dx : dx.view(saved_x.sizes()), x_dtype);
    if (const size_t residual = 1 + 2 * weights.size(); residual < out.size())
      out[residual] = in_dtype(gradients[0], residual_dtype);
    return out;
  }
  void release_variables() override {
    x.reset();
    for (Saved& weight : weights) weight.reset();
  }

 private:
  // Defers a weight gradient as a plain layer does (linear.cpp).
  bool put_off(size_t i, const at::Tensor& dy, const at::Tensor& rows) const {
    if (later == nullptr || !later->defers()) return false;
    const Edge weight = next_edge(1 + 2 * i), bias = next_edge(2 + 2 * i);
    for (const Edge& edge : {weight, bias})
      if (edge.is_valid() && !WeightGradients::is_leaf(edge)) return false;
    if (!weight.is_valid() && !bias.is_valid()) return true;
    const at::Tensor x_rows = weight.is_valid() ? rows : at::Tensor();
    later->push({weight, bias},
                [dy, x_rows, with_bias = bias.is_valid(), dtype = weight_dtype]() -> Gradients {
                  return {x_rows.defined() ? in_dtype(matrix_product(dy.t(), x_rows), dtype) : at::Tensor(),
                          with_bias ? in_dtype(dy.sum(0), dtype) : at::Tensor()};
                });
    return true;
  }
};

std::shared_ptr<AutocastLinearNode> node_of(const at::Tensor& residual, const at::Tensor& x,
                                            const at::Tensor& used, const FewWeights& layers) {
  if (!at::GradMode::is_enabled()) return nullptr;
  bool wanted = torch::autograd::compute_requires_grad(x, residual);
  for (const Weights& layer : layers)
    wanted = wanted || torch::autograd::compute_requires_grad(layer.weight, layer.bias);
  if (!wanted) return nullptr;
  std::shared_ptr<AutocastLinearNode> node(new AutocastLinearNode(), torch::autograd::deleteNode);
  torch::autograd::edge_list edges{edge_to(x)};
  for (const Weights& layer : layers) {
    edges.push_back(edge_to(layer.weight));
    edges.push_back(edge_to(layer.bias));
    node->weights.emplace_back().save_weight(layer.weight);
  }
  if (residual.defined()) {
    edges.push_back(edge_to(residual));
    node->residual_dtype = residual.scalar_type();
  }
  node->set_next_edges(std::move(edges));
  node->x_dtype = x.scalar_type();
  node->weight_dtype = layers[0].weight.scalar_type();
  node->x.save(used);
  return node;
}

}  // namespace

FewTensors linears_autocast(const at::Tensor& residual, const at::Tensor& x, const FewWeights& layers,
                            WeightGradients* later, Autocast& autocast) {
  at::Tensor used;
  {
    const BelowAutograd below;
    used = autocast.value(x);
  }
  const std::shared_ptr<AutocastLinearNode> node = node_of(residual, x, used, layers);
  FewTensors out;
  {
    const BelowAutograd below;
    for (const Weights& layer : layers) {
      at::Tensor y = once(Operator::product, [&] {
        const at::Tensor weight = autocast.weight(layer.weight), bias = autocast.weight(layer.bias);
        return product({}, used, {weight, bias});
      });
      out.push_back(residual.defined() ? residual + y : std::move(y));
    }
  }
  if (!node) return out;
  node->autocast = &autocast;
  node->later = later;
  for (const at::Tensor& y : out) torch::autograd::set_history(y, node);
  return out;
}

}  // namespace heddle::model
