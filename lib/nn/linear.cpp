// Linear layers of one input as one node: dX = the sum of dY W, dW = dY^T X, db = the column sums of dY.
#include "heddle/nn/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sum.h>

#include <utility>
#include <vector>

#include "core/model/parameter.h"
#include "heddle/model/autograd_node.h"
#include "heddle/nn/weight_gradients.h"
#include "lib/nn/linear_autocast.h"
#include "lib/nn/linear_products.h"

namespace heddle {
namespace model {
namespace {

using torch::autograd::Edge;

// Edges: x, then weight and bias of each layer, then the residual.
struct LinearNode final : LayerNode {
  LinearNode() : LayerNode("LinearBackward") {}
  Saved x;                             // where a weight trains
  c10::SmallVector<int64_t, 4> shape;  // of x
  c10::SmallVector<Saved, 3> weights;
  WeightGradients* later = nullptr;
  bool keeps_x = false;

  Gradients backward(Gradients&& gradients) override {
    Gradients out(num_outputs());
    const at::Tensor rows = keeps_x ? rows_of(x.unpack()) : at::Tensor();
    at::Tensor dx;
    if (!backward_joined(gradients, rows, dx, out)) backward_apart(gradients, rows, dx, out);
    if (dx.defined()) out[0] = shape.size() == 2 ? std::move(dx) : dx.view(shape);
    if (const size_t residual = 1 + 2 * weights.size(); residual < out.size()) out[residual] = gradients[0];
    return out;
  }
  void release_variables() override {
    x.reset();
    for (Saved& weight : weights) weight.reset();
  }

 private:
  void backward_apart(const Gradients& gradients, const at::Tensor& rows, at::Tensor& dx, Gradients& out) {
    for (size_t i = 0; i < weights.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const at::Tensor dy = rows_of(gradients[i]);
      if (!put_off(i, dy, rows)) {
        if (task_should_compute_output(1 + 2 * i)) out[1 + 2 * i] = matrix_product(dy.t(), rows);
        if (task_should_compute_output(2 + 2 * i)) out[2 + 2 * i] = dy.sum(0);
      }
      if (!task_should_compute_output(0)) continue;
      if (dx.defined())
        add_matrix_product(dx, dy, weights[i].unpack());
      else
        dx = matrix_product(dy, weights[i].unpack());
    }
  }

  // Two products for all layers, if their weights are adjacent and all of them train, or one if none does.
  bool backward_joined(const Gradients& gradients, const at::Tensor& rows, at::Tensor& dx, Gradients& out) {
    if (weights.size() == 1) return false;
    FewTensors unpacked;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (!gradients[i].defined() || task_should_compute_output(1 + 2 * i) != keeps_x) return false;
      if (!keeps_x && task_should_compute_output(2 + 2 * i)) return false;
      unpacked.push_back(weights[i].unpack());
    }
    const at::Tensor weight = joined_rows(unpacked);
    if (!weight.defined()) return false;
    const at::Tensor dy = joined_columns(gradients);
    if (task_should_compute_output(0)) dx = matrix_product(dy, weight);
    if (!keeps_x) return true;
    if (put_off_joined(unpacked, dy, rows)) return true;
    const at::Tensor dw = matrix_product(dy.t(), rows);
    int64_t at = 0;
    for (size_t i = 0; i < unpacked.size(); ++i) {
      const int64_t count = unpacked[i].size(0);
      out[1 + 2 * i] = dw.narrow(0, at, count);
      if (task_should_compute_output(2 + 2 * i)) out[2 + 2 * i] = dy.narrow(1, at, count).sum(0);
      at += count;
    }
    return true;
  }

  // Defers the gradients of layer i to the queue. A weight that was itself computed cannot be deferred: its
  // graph is released by this backward.
  bool put_off(size_t i, const at::Tensor& dy, const at::Tensor& rows) const {
    if (!can_wait(i)) return false;
    const Edge weight = next_edge(1 + 2 * i), bias = next_edge(2 + 2 * i);
    if (!weight.is_valid() && !bias.is_valid()) return true;
    const at::Tensor x_rows = weight.is_valid() ? rows : at::Tensor();
    const bool with_bias = bias.is_valid();
    later->push({weight, bias}, [dy, x_rows, with_bias]() -> Gradients {
      return {x_rows.defined() ? matrix_product(dy.t(), x_rows) : at::Tensor(),
              with_bias ? dy.sum(0) : at::Tensor()};
    });
    return true;
  }

  bool put_off_joined(const FewTensors& unpacked, const at::Tensor& dy, const at::Tensor& rows) const {
    WeightGradients::Leaves leaves;
    c10::SmallVector<int64_t, 3> counts;
    for (size_t i = 0; i < unpacked.size(); ++i) {
      if (!can_wait(i)) return false;
      leaves.push_back(next_edge(1 + 2 * i));
      leaves.push_back(next_edge(2 + 2 * i));
      counts.push_back(unpacked[i].size(0));
    }
    later->push(leaves, [leaves, counts, dy, rows]() -> Gradients {
      Gradients out(leaves.size());
      const at::Tensor dw = matrix_product(dy.t(), rows);
      int64_t at = 0;
      for (size_t i = 0; i < counts.size(); at += counts[i++]) {
        out[2 * i] = dw.narrow(0, at, counts[i]);
        if (leaves[2 * i + 1].is_valid()) out[2 * i + 1] = dy.narrow(1, at, counts[i]).sum(0);
      }
      return out;
    });
    return true;
  }

  bool can_wait(size_t i) const {
    if (later == nullptr || !later->defers()) return false;
    for (const Edge& edge : {next_edge(1 + 2 * i), next_edge(2 + 2 * i)})
      if (edge.is_valid() && !WeightGradients::is_leaf(edge)) return false;
    return true;
  }
};

bool asks_gradient(const at::Tensor& tensor) {
  return tensor.defined() && tensor.requires_grad();
}

// The node of the products, made before them: a region that only needs x ends here. Null if no gradient is
// needed.
std::shared_ptr<LinearNode> node_of(const at::Tensor& residual, const at::Tensor& x, const FewWeights& layers,
                                    WeightGradients* later) {
  if (!at::GradMode::is_enabled()) return nullptr;
  bool wanted = asks_gradient(x) || asks_gradient(residual);
  for (const Weights& layer : layers)
    wanted = wanted || asks_gradient(layer.weight) || asks_gradient(layer.bias);
  if (!wanted) return nullptr;
  std::shared_ptr<LinearNode> node(new LinearNode(), torch::autograd::deleteNode);
  torch::autograd::edge_list edges{edge_to(x)};
  for (const Weights& layer : layers) {
    edges.push_back(edge_to(layer.weight));
    edges.push_back(edge_to(layer.bias));
    node->keeps_x = node->keeps_x || asks_gradient(layer.weight);
    node->weights.emplace_back().save_weight(layer.weight);
  }
  if (residual.defined()) edges.push_back(edge_to(residual));
  node->set_next_edges(std::move(edges));
  node->shape.assign(x.sizes().begin(), x.sizes().end());
  if (node->keeps_x) node->x.save(x);
  node->later = later;
  return node;
}

FewTensors linears(const at::Tensor& residual, const at::Tensor& x, const FewWeights& layers, Outputs outputs,
                   WeightGradients* later) {
  if (Autocast* autocast = Autocast::active(); autocast != nullptr) [[unlikely]]
    return linears_autocast(residual, x, layers, later, *autocast);
  const std::shared_ptr<LinearNode> node = node_of(residual, x, layers, later);
  FewTensors out;
  {
    const BelowAutograd below;
    const bool joined = outputs == Outputs::columns && layers.size() > 1 && multiply_joined(x, layers, out);
    if (!joined)
      for (const Weights& layer : layers)
        out.push_back(once(Operator::product, [&] { return product(residual, x, layer); }));
  }
  if (node)
    for (const at::Tensor& y : out) torch::autograd::set_history(y, node);
  return out;
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  WeightGradients* later) {
  return std::move(linears({}, x, {{weight, bias}}, Outputs::apart, later)[0]);
}

at::Tensor linear_onto(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& bias, WeightGradients* later) {
  return std::move(linears(residual, x, {{weight, bias}}, Outputs::apart, later)[0]);
}

FewTensors products(std::span<Linear* const> layers, const at::Tensor& x, const Batch& batch,
                    Outputs outputs) {
  FewWeights weights;
  for (const Linear* layer : layers) weights.push_back({layer->weight, layer->bias});
  return linears({}, x, weights, outputs, batch.weight_gradients);
}

FewTensors call_each(std::initializer_list<Linear*> layers, const at::Tensor& x, const Batch& batch,
                     Outputs outputs) {
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
  out =
      first.instead.empty()
          ? products(all, x, batch, outputs)
          : first.instead.call([outputs](std::span<Linear* const> some, const at::Tensor& of,
                                         const Batch& within) { return products(some, of, within, outputs); },
                               all, x, batch);
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
  if (!instead.empty() || !output.empty()) return residual + call(std::move(x), batch);
  return model::linear_onto(residual, input(std::move(x), batch), weight, bias, batch.weight_gradients);
}

at::Tensor Linear::forward(at::Tensor x, const Batch& batch) {
  if (instead.empty()) return model::linear(x, weight, bias, batch.weight_gradients);
  Linear* const self = this;
  const auto own = [](std::span<Linear* const> layers, const at::Tensor& of, const Batch& within) {
    return model::products(layers, of, within);
  };
  return std::move(instead.call(own, {&self, 1}, x, batch)[0]);
}

}  // namespace heddle
