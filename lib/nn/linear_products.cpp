// Joins matrices by their addresses.
#include "lib/nn/linear_products.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/sum.h>

#include <memory>
#include <utility>
#include <vector>

#include "heddle/model/autocast.h"
#include "heddle/model/autograd_node.h"
#include "heddle/model/region.h"
#include "heddle/nn/linear.h"

namespace heddle::model {
namespace {

// In place, each layer's columns.
at::Tensor with_biases(at::Tensor all, const FewWeights& layers) {
  int64_t at = 0;
  for (const Weights& layer : layers) {
    if (layer.bias.defined()) all.narrow(1, at, layer.weight.size(0)).add_(layer.bias);
    at += layer.weight.size(0);
  }
  return all;
}

}  // namespace

at::Tensor rows_of(const at::Tensor& x) {
  return x.dim() == 2 ? x : x.reshape({-1, x.size(-1)});
}

at::Tensor shaped(at::Tensor y, const at::Tensor& x) {
  if (x.dim() == 2) return y;
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = y.size(-1);
  return y.view(shape);
}

at::Tensor product(const at::Tensor& residual, const at::Tensor& x, const Weights& layer) {
  const at::Tensor rows = rows_of(x), turned = layer.weight.t();
  at::Tensor y;
  if (residual.defined()) {
    y = matrix_product(rows, turned, rows_of(residual));
    if (layer.bias.defined()) y.add_(layer.bias);
  } else {
    y = matrix_product(rows, turned, layer.bias);
  }
  return shaped(std::move(y), x);
}

bool multiply_joined(const at::Tensor& x, const FewWeights& layers, FewTensors& out) {
  FewTensors weights;
  for (const Weights& layer : layers) weights.push_back(layer.weight);
  const at::Tensor joined = joined_rows(weights);
  if (!joined.defined()) return false;
  const at::Tensor all =
      once(Operator::product, [&] { return with_biases(matrix_product(rows_of(x), joined.t()), layers); });
  int64_t at = 0;
  for (const Weights& layer : layers) {
    const int64_t count = layer.weight.size(0);
    out.push_back(shaped(all.narrow(1, at, count), x));
    at += count;
  }
  return true;
}

at::Tensor joined_rows(std::span<const at::Tensor> parts) {
  const at::Tensor& first = parts[0];
  int64_t end = first.storage_offset(), rows = 0;
  for (const at::Tensor& part : parts) {
    if (part.storage().unsafeGetStorageImpl() != first.storage().unsafeGetStorageImpl() ||
        part.storage_offset() != end || part.scalar_type() != first.scalar_type() ||
        part.size(1) != first.size(1) || !part.is_contiguous())
      return {};
    end += part.numel();
    rows += part.size(0);
  }
  return first.as_strided({rows, first.size(1)}, {first.size(1), 1});
}

at::Tensor joined_columns(const std::vector<at::Tensor>& parts) {
  const at::Tensor first = rows_of(parts[0]);
  const int64_t stride = first.stride(0);
  FewTensors matrices;
  int64_t end = first.storage_offset(), columns = 0;
  bool side_by_side = true;
  for (const at::Tensor& part : parts) {
    matrices.push_back(rows_of(part));
    const at::Tensor& matrix = matrices.back();
    side_by_side = side_by_side &&
                   matrix.storage().unsafeGetStorageImpl() == first.storage().unsafeGetStorageImpl() &&
                   matrix.storage_offset() == end && matrix.stride(0) == stride && matrix.stride(1) == 1;
    end += matrix.size(1);
    columns += matrix.size(1);
  }
  if (!side_by_side || columns > stride) return at::cat(at::TensorList(matrices.data(), matrices.size()), 1);
  return first.as_strided({first.size(0), columns}, {stride, 1});
}

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
