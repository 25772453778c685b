// One node for the layers of one input. It keeps the packed weights.
#include "products.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sum.h>

#include <utility>
#include <vector>

#include "heddle/model/autocast.h"
#include "heddle/model/autograd_node.h"
#include "heddle/model/region.h"

namespace heddle::quantize {
namespace {

using model::Autocast;
using model::Gradients;

// Edges: x, then the bias of each layer.
struct QuantizedNode final : model::LayerNode {
  QuantizedNode() : LayerNode("QuantizedLinearBackward") {}
  c10::SmallVector<model::Saved, 3> weights;
  c10::SmallVector<Form, 3> forms;
  c10::SmallVector<at::ScalarType, 3> biases;
  std::vector<int64_t> shape;
  at::ScalarType x_dtype{}, compute{};

  Gradients backward(Gradients&& gradients) override {
    Gradients out(num_outputs());
    at::Tensor dx;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const at::Tensor dy = gradients[i].reshape({-1, gradients[i].size(-1)}).to(compute);
      if (task_should_compute_output(1 + i)) out[1 + i] = dy.sum(0).to(biases[i]);
      if (!task_should_compute_output(0)) continue;
      const at::Tensor weight = unpack(weights[i].unpack(), forms[i], compute);
      if (dx.defined())
        model::add_matrix_product(dx, dy, weight);
      else
        dx = model::matrix_product(dy, weight);
    }
    if (dx.defined()) out[0] = dx.view(shape).to(x_dtype);
    return out;
  }
  void release_variables() override {
    for (model::Saved& weight : weights) weight.reset();
  }
};

std::shared_ptr<QuantizedNode> node_of(std::span<Linear* const> layers, const at::Tensor& x,
                                       const Packed& packed) {
  std::vector<at::Tensor> inputs{x};
  for (const Linear* layer : layers) inputs.push_back(layer->bias);
  if (!torch::autograd::compute_requires_grad(at::TensorList(inputs))) return nullptr;
  auto node = model::make_node<QuantizedNode>(at::TensorList(inputs));
  for (const Linear* layer : layers) {
    node->weights.emplace_back().save_weight(layer->weight);
    node->forms.push_back(packed.forms.at(layer));
    node->biases.push_back(layer->bias.defined() ? layer->bias.scalar_type() : at::kFloat);
  }
  node->shape = x.sizes().vec();
  node->x_dtype = x.scalar_type();
  node->compute = packed.compute;
  return node;
}

// rows [rows, in], in the dtype of the products.
at::Tensor product(const Linear& layer, const Form& form, const at::Tensor& rows) {
  const at::Tensor weight = unpack(layer.weight, form, rows.scalar_type());
  const at::Tensor bias = layer.bias.defined() ? layer.bias.to(rows.scalar_type()) : at::Tensor();
  return model::matrix_product(rows, weight.t(), bias);
}

at::Tensor of_shape(const at::Tensor& y, const at::Tensor& x) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = y.size(-1);
  return y.view(shape);
}

}  // namespace

model::FewTensors linears(std::span<Linear* const> layers, const at::Tensor& x, const Packed& packed) {
  const Autocast* const autocast = Autocast::active();
  const std::shared_ptr<QuantizedNode> node = node_of(layers, x, packed);
  model::FewTensors out;
  {
    const model::BelowAutograd below;
    const at::ScalarType dtype =
        autocast != nullptr && x.scalar_type() != at::kDouble ? autocast->dtype() : x.scalar_type();
    at::Tensor rows;
    for (const Linear* layer : layers)
      out.push_back(of_shape(model::once(model::Operator::product,
                                         [&] {
                                           if (!rows.defined())
                                             rows = x.reshape({-1, x.size(-1)}).to(packed.compute);
                                           return product(*layer, packed.forms.at(layer), rows).to(dtype);
                                         }),
                             x));
  }
  if (node)
    for (const at::Tensor& y : out) torch::autograd::set_history(y, node);
  return out;
}

}  // namespace heddle::quantize
