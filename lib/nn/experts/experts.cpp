// All experts as one node: rows sorted by expert, two grouped products, and the sum of each token's rows.
#include "heddle/nn/experts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/model/parameter.h"
#include "heddle/base/error.h"
#include "heddle/model/autocast.h"
#include "heddle/model/autograd_node.h"
#include "heddle/model/region.h"
#include "heddle/nn/device_ops.h"
#include "heddle/nn/weight_gradients.h"
#include "lib/nn/cpu/cpu_rows.h"
#include "lib/nn/experts/expert_adapters.h"
#include "lib/nn/experts/expert_pass.h"
#include "lib/nn/experts/grouped_product.h"

namespace heddle::model {
namespace {

using torch::autograd::Edge;

// Edges: x, the routing's weights, gate_up, down and, where they exist, their biases.
struct ExpertsNode final : LayerNode {
  ExpertsNode() : LayerNode("ExpertsBackward") {}
  Saved x, weights, hidden, gate_up, down, down_bias;
  SavedAdapter gate_up_adapter, down_adapter;
  size_t adapters_at = 0;  // the first of their four edges, the last ones; 0: there are none
  std::shared_ptr<const ExpertRows> rows;
  std::shared_ptr<const ExpertProducts> products;
  ExpertActivation activation;
  double bias_share = 1;
  bool passes = false;  // has_expert_pass()
  at::ScalarType x_dtype{};
  Autocast* autocast = nullptr;
  WeightGradients* later = nullptr;

  Gradients backward(Gradients&& gradients) override {
    if (in_one_pass() && has_one_thread(gradients[0])) return one_pass(gradients[0]);
    Factors factors;
    factors.rows = rows;
    factors.products = products;
    factors.x = x.unpack();
    const at::Tensor saved_weights = weights.unpack(), saved_hidden = hidden.unpack();
    const at::Tensor whole_down = down.unpack(), whole_gate_up = gate_up.unpack();
    factors.dtype = whole_down.scalar_type();
    factors.shape = whole_gate_up.sizes().vec();
    factors.bias_share = bias_share;
    factors.dy = take_rows(cast_to(gradients[0].contiguous(), saved_hidden.scalar_type()), *rows);
    factors.shares = weights_of_rows(saved_weights, *rows, accumulation_dtype(saved_hidden.scalar_type()));
    at::Tensor d_activated =
        products_of(products).backward(factors.dy, used_weight(autocast, whole_down), rows->begins);
    Adapters adapters;
    if (adapters_at > 0) adapters = adapters_back(factors.dy, d_activated);
    ActivationGradients inner = activate_backward(activation, d_activated, saved_hidden, factors.shares);
    if (const at::Tensor& bias = down_bias.unpack(); bias.defined())
      inner.weights.add_(
          grouped_dot(factors.dy, shared_bias(used_weight(autocast, bias), bias_share), rows->begins));
    factors.d_hidden = std::move(inner.hidden);
    factors.activated = std::move(inner.y);
    Gradients out(num_outputs());
    at::Tensor dx = of_rows(factors, used_weight(autocast, whole_gate_up));
    if (adapters_at > 0) of_adapters(factors, adapters, dx, out);
    if (task_should_compute_output(0)) out[0] = cast_to(combine_rows(dx, *rows, factors.x.size(0)), x_dtype);
    if (task_should_compute_output(1)) out[1] = of_weights(inner.weights, saved_weights);
    if (put_off(factors)) return out;
    for (size_t edge = 2; edge < own_edges(); ++edge)
      if (task_should_compute_output(edge)) out[edge] = factors.of(edge);
    return out;
  }
  void release_variables() override {
    for (Saved* saved : {&x, &weights, &hidden, &gate_up, &down, &down_bias}) saved->reset();
    gate_up_adapter.reset();
    down_adapter.reset();
  }

 private:
  struct Adapters {
    ExpertAdapter gate_up, down;
    at::Tensor down_back;
  };

  // Number of edges to x, the router's weights and the base's parameters.
  size_t own_edges() const { return adapters_at > 0 ? adapters_at : num_outputs(); }

  Adapters adapters_back(const at::Tensor& dy, at::Tensor& d_activated) {
    Adapters out{gate_up_adapter.unpack(autocast), down_adapter.unpack(autocast), {}};
    out.down_back = add_adapter_back(d_activated, dy, out.down, rows->begins);
    return out;
  }

  void of_adapters(const Factors& factors, const Adapters& of, at::Tensor& dx, Gradients& out) const {
    if (!dx.defined()) dx = at::zeros({rows->count(), factors.x.size(1)}, factors.x.options());
    const std::vector<int64_t>& begins = rows->begins;
    const at::Tensor back = add_adapter_back(dx, factors.d_hidden, of.gate_up, begins);
    const at::Tensor x_rows = take_rows(factors.x, *rows);
    const at::ScalarType dtype = factors.dtype;
    out[adapters_at] = cast_to(gradient_of_a(back, x_rows, begins), dtype);
    out[adapters_at + 1] = cast_to(gradient_of_b(factors.d_hidden, x_rows, of.gate_up, begins), dtype);
    out[adapters_at + 2] = cast_to(gradient_of_a(of.down_back, factors.activated, begins), dtype);
    out[adapters_at + 3] = cast_to(gradient_of_b(factors.dy, factors.activated, of.down, begins), dtype);
  }

  // Says whether every gradient is wanted now.
  bool in_one_pass() const {
    if (!passes || autocast != nullptr || (later != nullptr && later->defers())) return false;
    for (size_t edge = 0; edge < num_outputs(); ++edge)
      if (!task_should_compute_output(edge)) return false;
    return true;
  }

  Gradients one_pass(const at::Tensor& gradient) {
    const at::Tensor tokens = x.unpack(), given = weights.unpack(), first = hidden.unpack();
    const at::Tensor whole_gate_up = gate_up.unpack(), whole_down = down.unpack();
    const PassGradients of = pass_backward(
        {*rows, activation, tokens, whole_gate_up, whole_down, weights_of_rows(given, *rows, at::kFloat)},
        first, cast_to(gradient.contiguous(), at::kFloat));
    return {cast_to(combine_rows(of.rows, *rows, tokens.size(0)), x_dtype), of_weights(of.shares, given),
            of.gate_up, of.down};
  }

  // Gradient of x before the sum over a token's rows; undefined: not wanted.
  at::Tensor of_rows(const Factors& factors, const at::Tensor& whole_gate_up) const {
    if (!task_should_compute_output(0)) return {};
    return products_of(products).backward(factors.d_hidden, as_matrices(whole_gate_up), rows->begins);
  }

  at::Tensor of_weights(const at::Tensor& row_gradients, const at::Tensor& given) const {
    if (given.is_meta()) return at::empty_like(given);
    const at::Tensor out = at::zeros(given.sizes(), given.options());
    out.view({-1}).index_copy_(0, rows->slots, cast_to(row_gradients, given.scalar_type()));
    return out;
  }

  // Leaves the parameters' gradients to the queue. A parameter that was computed itself cannot wait.
  bool put_off(const Factors& factors) const {
    if (later == nullptr || !later->defers()) return false;
    std::vector<Edge> edges;
    std::vector<size_t> wanted;
    for (size_t i = 2; i < own_edges(); ++i) {
      edges.push_back(next_edge(i));
      if (edges.back().is_valid() && !WeightGradients::is_leaf(edges.back())) return false;
      wanted.push_back(edges.back().is_valid() ? i : 0);
    }
    if (std::none_of(wanted.begin(), wanted.end(), [](size_t edge) { return edge > 0; })) return true;
    later->push(edges, [factors, wanted]() -> Gradients {
      Gradients out;
      for (const size_t edge : wanted) out.push_back(edge > 0 ? factors.of(edge) : at::Tensor());
      return out;
    });
    return true;
  }
};

std::shared_ptr<ExpertsNode> node_of(const at::Tensor& x, const Routing& routing,
                                     const ExpertParameters& of) {
  const ExpertAdapters& more = of.adapters;
  std::vector<at::Tensor> inputs = {x, routing.weights, of.gate_up, of.down};
  if (of.gate_up_bias.defined()) inputs.insert(inputs.end(), {of.gate_up_bias, of.down_bias});
  const size_t own = inputs.size();
  if (more.down_a.defined())
    inputs.insert(inputs.end(), {more.gate_up_a, more.gate_up_b, more.down_a, more.down_b});
  if (!torch::autograd::compute_requires_grad(at::TensorList(inputs))) return nullptr;
  auto node = make_node<ExpertsNode>(at::TensorList(inputs));
  if (!more.down_a.defined()) return node;
  node->adapters_at = own;
  node->gate_up_adapter.save({more.gate_up_a, more.gate_up_b, more.scale});
  node->down_adapter.save({more.down_a, more.down_b, more.scale});
  return node;
}

// Multiplies and adds the bias of each row's expert, times its share.
at::Tensor product(const ExpertParameters& of, const at::Tensor& x, const at::Tensor& weights,
                   std::span<const int64_t> begins, const at::Tensor& bias, const at::Tensor& shares = {}) {
  const at::Tensor y = products_of(of.products).forward(x, weights, begins);
  if (bias.defined()) add_grouped_bias(y, begins, bias, shares);
  return y;
}

// Two grouped products over all rows; saves the first one's result.
at::Tensor rows_by_products(const at::Tensor& x, const Routing& routing, const ExpertParameters& of,
                            const ExpertActivation& activation, const ExpertRows& rows, ExpertsNode* node) {
  Autocast* const autocast = Autocast::active();
  const ExpertAdapters& more = of.adapters;
  const auto with_adapter = [&](at::Tensor y, const at::Tensor& from, const at::Tensor& a,
                                const at::Tensor& b) {
    if (!a.defined()) return y;
    add_adapter(y, from, {used_weight(autocast, a), used_weight(autocast, b), more.scale}, rows.begins);
    return y;
  };
  const at::Tensor hidden = once(Operator::product, [&] {
    const at::Tensor x_rows = take_rows(x, rows);
    return with_adapter(product(of, x_rows, as_matrices(used_weight(autocast, of.gate_up)), rows.begins,
                                as_rows(used_weight(autocast, of.gate_up_bias))),
                        x_rows, more.gate_up_a, more.gate_up_b);
  });
  if (node != nullptr) node->hidden.save(hidden);
  return once(Operator::product, [&] {
    const at::Tensor shares =
        weights_of_rows(routing.weights, rows, accumulation_dtype(hidden.scalar_type()));
    const at::Tensor activated = activate(activation, hidden, shares);
    return with_adapter(product(of, activated, used_weight(autocast, of.down), rows.begins,
                                shared_bias(used_weight(autocast, of.down_bias), of.bias_share), shares),
                        activated, more.down_a, more.down_b);
  });
}

// Computes the rows one expert after the other.
at::Tensor rows_in_one_pass(const at::Tensor& x, const Routing& routing, const ExpertParameters& of,
                            const ExpertActivation& activation, const ExpertRows& rows, ExpertsNode* node) {
  const at::Tensor hidden = at::empty({rows.count(), 2 * of.down.size(2)}, x.options());
  const at::Tensor shares = weights_of_rows(routing.weights, rows, at::kFloat);
  const at::Tensor of_rows = pass_forward({rows, activation, x, of.gate_up, of.down, shares}, hidden);
  if (node != nullptr) node->hidden.save(hidden);
  return of_rows;
}

// Choices that the host knows are sorted there, and the host waits for no device.
ExpertRows rows_for(const at::Tensor& chosen, int64_t experts, const at::Tensor& x) {
  ExpertRows rows = sort_by_expert(chosen, experts);
  if (!chosen.is_cpu() || x.is_cpu()) return rows;
  for (at::Tensor* indices : {&rows.tokens, &rows.slots, &rows.rows})
    *indices = sent_to(*indices, x.device());
  return rows;
}

}  // namespace

at::Tensor experts(const at::Tensor& x, const Routing& routing, const ExpertParameters& of,
                   const ExpertActivation& activation, WeightGradients* later) {
  Autocast* const autocast = Autocast::active();
  const std::shared_ptr<ExpertsNode> node = node_of(x, routing, of);
  at::Tensor y;
  {
    const BelowAutograd below;
    const auto rows = std::make_shared<const ExpertRows>(rows_for(routing.experts, of.gate_up.size(0), x));
    const at::Tensor used = (autocast == nullptr ? x : autocast->value(x)).contiguous();
    const bool passes = autocast == nullptr && has_expert_pass(activation, used, of);
    if (node) {
      node->x.save(used);
      node->weights.save(routing.weights);
      node->gate_up.save_weight(of.gate_up);
      node->down.save_weight(of.down);
      node->down_bias.save_weight(of.down_bias);
      node->rows = rows;
      node->products = of.products;
      node->activation = activation;
      node->bias_share = of.bias_share;
      node->x_dtype = x.scalar_type();
      node->autocast = autocast;
      node->later = later;
      node->passes = passes;
    }
    // A region keeps and counts the results of products one by one.
    const auto compute = passes && Region::active() == nullptr ? rows_in_one_pass : rows_by_products;
    const at::Tensor of_rows = compute(used, routing, of, activation, *rows, node.get());
    y = cast_to(combine_rows(of_rows, *rows, x.size(0)), x.scalar_type());
  }
  if (node) torch::autograd::set_history(y, node);
  return y;
}

}  // namespace heddle::model
