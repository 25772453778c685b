// The autograd node of linear layers whose products a LinearProducts computes.
#include <ATen/ops/sum.h>

#include <memory>
#include <utility>
#include <vector>

#include "heddle/model/autocast.h"
#include "heddle/model/autograd_node.h"
#include "heddle/model/region.h"
#include "heddle/nn/linear.h"
#include "lib/nn/linear_products.h"

namespace heddle::model {
namespace {

at::Tensor used(Autocast* autocast, const at::Tensor& weight) {
  return autocast == nullptr || !weight.defined() || !weight.is_floating_point() ? weight
                                                                                 : autocast->weight(weight);
}

// Edges: x, then weight and bias of each layer.
struct ProductsNode final : LayerNode {
  ProductsNode() : LayerNode("LinearProductsBackward") {}
  std::unique_ptr<LinearProducts> how;
  Saved rows;
  struct Layer {
    Saved weight;
    at::ScalarType weight_dtype{}, bias_dtype{};
  };
  c10::SmallVector<Layer, 3> layers;
  std::vector<int64_t> shape;
  at::ScalarType x_dtype{};
  Autocast* autocast = nullptr;
  bool keeps_rows = false;

  Gradients backward(Gradients&& gradients) override {
    Gradients out(num_outputs());
    const at::Tensor x = keeps_rows ? rows.unpack() : at::Tensor();
    at::Tensor dx;
    for (size_t i = 0; i < layers.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const at::Tensor dy = rows_of(gradients[i]);
      if (task_should_compute_output(2 + 2 * i)) out[2 + 2 * i] = in_dtype(dy.sum(0), layers[i].bias_dtype);
      const bool of_weight = task_should_compute_output(1 + 2 * i), of_rows = task_should_compute_output(0);
      if (!of_weight && !of_rows) continue;
      LinearGradients got = how->backward(i, dy, x, used(autocast, layers[i].weight.unpack()),
                                          !of_rows     ? LinearWanted::weight
                                          : !of_weight ? LinearWanted::rows
                                                       : LinearWanted::both);
      if (of_weight) out[1 + 2 * i] = in_dtype(got.weight, layers[i].weight_dtype);
      if (of_rows) dx = dx.defined() ? dx.add_(got.rows) : std::move(got.rows);
    }
    if (dx.defined()) out[0] = in_dtype(dx.view(shape), x_dtype);
    return out;
  }
  void release_variables() override {
    rows.reset();
    for (Layer& layer : layers) layer.weight.reset();
    how.reset();
  }
};

std::shared_ptr<ProductsNode> node_of(std::span<Linear* const> layers, const at::Tensor& x, bool keeps_rows) {
  std::vector<at::Tensor> inputs{x};
  for (const Linear* layer : layers) inputs.insert(inputs.end(), {layer->weight, layer->bias});
  if (!torch::autograd::compute_requires_grad(at::TensorList(inputs))) return nullptr;
  auto node = make_node<ProductsNode>(at::TensorList(inputs));
  node->keeps_rows = keeps_rows;
  for (const Linear* layer : layers) {
    ProductsNode::Layer& kept = node->layers.emplace_back();
    kept.weight.save_weight(layer->weight);
    kept.weight_dtype = layer->weight.scalar_type();
    if (layer->bias.defined()) kept.bias_dtype = layer->bias.scalar_type();
    node->keeps_rows = node->keeps_rows || layer->weight.requires_grad();
  }
  node->shape = x.sizes().vec();
  node->x_dtype = x.scalar_type();
  return node;
}

}  // namespace

LinearProducts::~LinearProducts() = default;

FewTensors products_by(std::unique_ptr<LinearProducts> how, std::span<Linear* const> layers,
                       const at::Tensor& x) {
  Autocast* const autocast = Autocast::active();
  const std::shared_ptr<ProductsNode> node = node_of(layers, x, how->keeps_rows());
  FewTensors out;
  {
    const BelowAutograd below;
    const at::Tensor rows = rows_of(autocast == nullptr ? x : autocast->value(x));
    if (node && node->keeps_rows) node->rows.save(rows);
    for (size_t i = 0; i < layers.size(); ++i)
      out.push_back(shaped(in_dtype(once(Operator::product,
                                         [&] {
                                           return how->forward(i, rows, used(autocast, layers[i]->weight),
                                                               used(autocast, layers[i]->bias));
                                         }),
                                    rows.scalar_type()),
                           x));
    how->end_forward();
  }
  if (!node) return out;
  node->autocast = autocast;
  node->how = std::move(how);
  for (const at::Tensor& y : out) torch::autograd::set_history(y, node);
  return out;
}

}  // namespace heddle::model
