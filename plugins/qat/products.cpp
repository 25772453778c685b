// One node for the layers of one input.
#include "products.h"

#include <ATen/ops/sum.h>

#include <utility>
#include <vector>

#include "heddle/model/autocast.h"
#include "heddle/model/autograd_node.h"
#include "heddle/model/batch.h"
#include "heddle/model/region.h"

namespace heddle::qat {
namespace {

using model::Autocast;
using model::Gradients;

at::Tensor used(Autocast* autocast, const at::Tensor& weight) {
  return autocast == nullptr ? weight : autocast->weight(weight);
}

// The rows as the products take them.
FakeQuantized input_of(const at::Tensor& rows, const How& how) {
  return how.tokens ? rounded_tokens(rows) : FakeQuantized{rows, {}, {}, {}};
}

// Edges: x, then weight and bias of each layer.
struct FakeQuantizedNode final : model::LayerNode {
  FakeQuantizedNode() : LayerNode("FakeQuantizedLinearBackward") {}
  model::Saved x;
  c10::SmallVector<model::Saved, 3> weights;
  c10::SmallVector<at::ScalarType, 3> dtypes;
  std::vector<int64_t> shape;
  at::ScalarType x_dtype{};
  Autocast* autocast = nullptr;
  How how;

  Gradients backward(Gradients&& gradients) override {
    Gradients out(num_outputs());
    const FakeQuantized in = input_of(x.unpack(), how);
    at::Tensor dx;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const at::Tensor dy = gradients[i].reshape({-1, gradients[i].size(-1)});
      if (task_should_compute_output(2 + 2 * i)) out[2 + 2 * i] = dy.sum(0).to(dtypes[i]);
      if (!task_should_compute_output(0) && !task_should_compute_output(1 + 2 * i)) continue;
      const FakeQuantized weight = rounded_weight(used(autocast, weights[i].unpack()), how.weights);
      if (task_should_compute_output(1 + 2 * i))
        out[1 + 2 * i] = through(weight, model::matrix_product(dy.t(), in.value)).to(dtypes[i]);
      if (!task_should_compute_output(0)) continue;
      if (dx.defined())
        model::add_matrix_product(dx, dy, weight.value);
      else
        dx = model::matrix_product(dy, weight.value);
    }
    if (dx.defined()) out[0] = (how.tokens ? through(in, dx) : dx).view(shape).to(x_dtype);
    return out;
  }
  void release_variables() override {
    x.reset();
    for (model::Saved& weight : weights) weight.reset();
  }
};

std::shared_ptr<FakeQuantizedNode> node_of(std::span<Linear* const> layers, const at::Tensor& x) {
  std::vector<at::Tensor> inputs{x};
  for (const Linear* layer : layers) inputs.insert(inputs.end(), {layer->weight, layer->bias});
  if (!torch::autograd::compute_requires_grad(at::TensorList(inputs))) return nullptr;
  auto node = model::make_node<FakeQuantizedNode>(at::TensorList(inputs));
  for (const Linear* layer : layers) {
    node->weights.emplace_back().save_weight(layer->weight);
    node->dtypes.push_back(layer->weight.scalar_type());
  }
  node->shape = x.sizes().vec();
  node->x_dtype = x.scalar_type();
  return node;
}

at::Tensor product(const Linear& layer, const at::Tensor& rows, Autocast* autocast, const How& how) {
  const at::Tensor weight = rounded_weight(used(autocast, layer.weight), how.weights).value;
  const at::Tensor bias = layer.bias.defined() ? used(autocast, layer.bias) : at::Tensor();
  return model::matrix_product(rows, weight.t(), bias);
}

at::Tensor of_shape(const at::Tensor& y, const at::Tensor& x) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = y.size(-1);
  return y.view(shape);
}

}  // namespace

model::FewTensors linears(std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch,
                          const How& how) {
  if (batch.step < how.first_step) return model::products(layers, x, batch);
  Autocast* const autocast = Autocast::active();
  const std::shared_ptr<FakeQuantizedNode> node = node_of(layers, x);
  model::FewTensors out;
  {
    const model::BelowAutograd below;
    const at::Tensor rows = (autocast == nullptr ? x : autocast->value(x)).reshape({-1, x.size(-1)});
    if (node) {
      node->x.save(rows);
      node->autocast = autocast;
      node->how = how;
    }
    at::Tensor in;  // rounded once for all layers
    for (const Linear* layer : layers)
      out.push_back(of_shape(model::once(model::Operator::product,
                                         [&] {
                                           if (!in.defined()) in = input_of(rows, how).value;
                                           return product(*layer, in, autocast, how);
                                         }),
                             x));
  }
  if (node)
    for (const at::Tensor& y : out) torch::autograd::set_history(y, node);
  return out;
}

}  // namespace heddle::qat
