// Linear layers of one input as one node: dX = the sum of dY W, dW = dY^T X, db = the column sums of dY.
#include "heddle/model/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include <utility>
#include <vector>

#include "heddle/model/autograd_node.h"
#include "heddle/model/parameter.h"
#include "heddle/model/weight_gradients.h"

namespace heddle {
namespace model {
namespace {

using torch::autograd::Edge;
using torch::autograd::SavedVariable;

struct Weights {
  const at::Tensor &weight, &bias;
};
using FewWeights = c10::SmallVector<Weights, 3>;

at::Tensor rows_of(const at::Tensor& x) {
  return x.dim() == 2 ? x : x.reshape({-1, x.size(-1)});
}

Edge edge_to(const at::Tensor& tensor) {
  return tensor.defined() ? torch::autograd::impl::gradient_edge(tensor) : Edge();
}

// Edges: x, then weight and bias of each layer, then the residual.
struct LinearNode final : LayerNode {
  LinearNode() : LayerNode("LinearBackward") {}
  SavedVariable x;
  c10::SmallVector<SavedVariable, 3> weights;
  WeightGradients* later = nullptr;

  Gradients backward(Gradients&& gradients) override {
    Gradients out(num_outputs());
    const at::Tensor saved_x = x.unpack(), rows = rows_of(saved_x);
    at::Tensor dx;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const at::Tensor dy = rows_of(gradients[i]);
      if (!put_off(i, dy, rows)) {
        if (task_should_compute_output(1 + 2 * i)) out[1 + 2 * i] = at::mm(dy.t(), rows);
        if (task_should_compute_output(2 + 2 * i)) out[2 + 2 * i] = dy.sum(0);
      }
      if (!task_should_compute_output(0)) continue;
      if (dx.defined())
        dx.addmm_(dy, weights[i].unpack());
      else
        dx = at::mm(dy, weights[i].unpack());
    }
    if (dx.defined()) out[0] = saved_x.dim() == 2 ? std::move(dx) : dx.view(saved_x.sizes());
    if (const size_t residual = 1 + 2 * weights.size(); residual < out.size()) out[residual] = gradients[0];
    return out;
  }
  void release_variables() override {
    x.reset_data();
    for (SavedVariable& weight : weights) weight.reset_data();
  }

 private:
  // Leaves the gradients of layer i to the queue. A weight that was computed itself cannot wait: its graph is
  // released by this backward.
  bool put_off(size_t i, const at::Tensor& dy, const at::Tensor& rows) const {
    if (later == nullptr || !later->defers()) return false;
    const Edge weight = next_edge(1 + 2 * i), bias = next_edge(2 + 2 * i);
    for (const Edge& edge : {weight, bias})
      if (edge.is_valid() && !WeightGradients::is_leaf(edge)) return false;
    if (!weight.is_valid() && !bias.is_valid()) return true;
    const at::Tensor x_rows = weight.is_valid() ? rows : at::Tensor();
    const bool with_bias = bias.is_valid();
    later->push({weight, bias}, [dy, x_rows, with_bias]() -> Gradients {
      return {x_rows.defined() ? at::mm(dy.t(), x_rows) : at::Tensor(), with_bias ? dy.sum(0) : at::Tensor()};
    });
    return true;
  }
};

at::Tensor product(const at::Tensor& residual, const at::Tensor& x, const Weights& layer) {
  const at::Tensor rows = rows_of(x), turned = layer.weight.t();
  at::Tensor y;
  if (residual.defined()) {
    y = at::addmm(rows_of(residual), rows, turned);
    if (layer.bias.defined()) y.add_(layer.bias);
  } else {
    y = layer.bias.defined() ? at::addmm(layer.bias, rows, turned) : at::mm(rows, turned);
  }
  if (x.dim() == 2) return y;
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = layer.weight.size(0);
  return y.view(shape);
}

bool asks_gradient(const at::Tensor& tensor) {
  return tensor.defined() && tensor.requires_grad();
}

void record(const FewTensors& outputs, const at::Tensor& residual, const at::Tensor& x,
            const FewWeights& layers, WeightGradients* later) {
  if (!at::GradMode::is_enabled()) return;
  bool wanted = asks_gradient(x) || asks_gradient(residual);
  for (const Weights& layer : layers)
    wanted = wanted || asks_gradient(layer.weight) || asks_gradient(layer.bias);
  if (!wanted) return;
  std::shared_ptr<LinearNode> node(new LinearNode(), torch::autograd::deleteNode);
  torch::autograd::edge_list edges{edge_to(x)};
  for (const Weights& layer : layers) {
    edges.push_back(edge_to(layer.weight));
    edges.push_back(edge_to(layer.bias));
    node->weights.emplace_back(layer.weight, false);
  }
  if (residual.defined()) edges.push_back(edge_to(residual));
  node->set_next_edges(std::move(edges));
  node->x = SavedVariable(x, false);
  node->later = later;
  for (const at::Tensor& y : outputs) torch::autograd::set_history(y, node);
}

FewTensors linears(const at::Tensor& residual, const at::Tensor& x, const FewWeights& layers,
                   WeightGradients* later) {
  FewTensors out;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    for (const Weights& layer : layers) out.push_back(product(residual, x, layer));
  }
  record(out, residual, x, layers, later);
  return out;
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  WeightGradients* later) {
  return std::move(linears({}, x, {{weight, bias}}, later)[0]);
}

at::Tensor linear_onto(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& bias, WeightGradients* later) {
  return std::move(linears(residual, x, {{weight, bias}}, later)[0]);
}

FewTensors products(std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch) {
  FewWeights weights;
  for (const Linear* layer : layers) weights.push_back({layer->weight, layer->bias});
  return linears({}, x, weights, batch.weight_gradients);
}

FewTensors call_each(std::initializer_list<Linear*> layers, const at::Tensor& x, const Batch& batch) {
  const Linear& first = **layers.begin();
  bool together = true;
  for (const Linear* layer : layers)
    together = together && layer->input.empty() && layer->instead == first.instead;
  FewTensors out;
  if (!together) {
    for (Linear* layer : layers) out.push_back(layer->call(x, batch));
    return out;
  }
  const std::span<Linear* const> all(layers.begin(), layers.size());
  out = first.instead ? (*first.instead)(all, x, batch) : products(all, x, batch);
  for (size_t i = 0; i < out.size(); ++i) out[i] = all[i]->output(std::move(out[i]), batch);
  return out;
}

}  // namespace model

Linear::Linear(int64_t in, int64_t out, Bias with_bias, const Init& init, const at::TensorOptions& options) {
  weight = model::make_parameter({out, in}, init, options);
  add_slot("weight", weight, init);
  if (with_bias == Bias::none) return;
  const Init zeros{Init::Kind::zeros, 0.0};
  bias = model::make_parameter({out}, zeros, options);
  add_slot("bias", bias, zeros);
}

at::Tensor Linear::call_onto(const at::Tensor& residual, at::Tensor x, const Batch& batch) {
  if (instead || !output.empty()) return residual + call(std::move(x), batch);
  return model::linear_onto(residual, input(std::move(x), batch), weight, bias, batch.weight_gradients);
}

at::Tensor Linear::forward(at::Tensor x, const Batch& batch) {
  if (instead) {
    Linear* const self = this;
    return std::move((*instead)({&self, 1}, x, batch)[0]);
  }
  return model::linear(x, weight, bias, batch.weight_gradients);
}

}  // namespace heddle
