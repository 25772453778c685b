// All experts as one node: rows sorted by expert, two grouped products, and the sum of each token's rows.
#include "heddle/nn/experts.h"

#include <ATen/Parallel.h>
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
#include "heddle/nn/weight_gradients.h"
#include "lib/nn/cpu/cpu_rows.h"
#include "lib/nn/experts/expert_pass.h"
#include "lib/nn/experts/grouped_product.h"

namespace heddle {
namespace model {
namespace {

using torch::autograd::Edge;

at::Tensor cast_to(const at::Tensor& gradient, at::ScalarType dtype) {
  return gradient.scalar_type() == dtype ? gradient : gradient.to(dtype);
}

at::Tensor used_weight(Autocast* autocast, const at::Tensor& weight) {
  return autocast == nullptr || !weight.defined() ? weight : autocast->weight(weight);
}

// Columns as a dim of their own become one with the width.
at::Tensor as_matrices(const at::Tensor& gate_up) {
  return gate_up.dim() == 4 ? gate_up.flatten(1, 2) : gate_up;
}

at::Tensor as_rows(const at::Tensor& bias) {
  return bias.defined() && bias.dim() == 3 ? bias.flatten(1, 2) : bias;
}

// The router's weight of each row, in wide arithmetic.
at::Tensor weights_of_rows(const at::Tensor& weights, const ExpertRows& rows, at::ScalarType wide) {
  if (weights.is_meta()) return at::empty({rows.count()}, weights.options().dtype(wide).requires_grad(false));
  return at::index_select(weights.reshape({-1}), 0, rows.slots).to(wide);
}

at::Tensor shared_bias(const at::Tensor& bias, double share) {
  return share == 1 || !bias.defined() ? bias : bias * share;
}

// What the gradients of both parameters are made of.
struct Factors {
  at::Tensor x, d_hidden, activated, dy;  // [tokens, hidden], [rows, ...], [rows, width], [rows, hidden]
  at::Tensor shares;                      // [rows]: the router's weights
  std::shared_ptr<const ExpertRows> rows;
  at::ScalarType dtype{};      // of the parameters
  std::vector<int64_t> shape;  // of gate_up
  double bias_share = 1;

  at::Tensor of_gate_up() const {
    return cast_to(grouped_weight_gradient(d_hidden, take_rows(x, *rows), rows->begins), dtype).view(shape);
  }
  at::Tensor of_down() const { return cast_to(grouped_weight_gradient(dy, activated, rows->begins), dtype); }
  at::Tensor of_gate_up_bias() const {
    const at::IntArrayRef of_weights = shape;
    return cast_to(grouped_sum(d_hidden, rows->begins), dtype).view(of_weights.slice(0, shape.size() - 1));
  }
  at::Tensor of_down_bias() const {
    return cast_to(grouped_sum(dy, rows->begins, bias_share == 1 ? shares : shares * bias_share), dtype);
  }

  // By the edge of ExpertsNode.
  at::Tensor of(size_t edge) const {
    return edge == 2 ? of_gate_up() : edge == 3 ? of_down() : edge == 4 ? of_gate_up_bias() : of_down_bias();
  }
};

// Edges: x, the routing's weights, gate_up, down and, where they exist, their biases.
struct ExpertsNode final : LayerNode {
  ExpertsNode() : LayerNode("ExpertsBackward") {}
  Saved x, weights, hidden, gate_up, down, down_bias;
  std::shared_ptr<const ExpertRows> rows;
  ExpertActivation activation;
  double bias_share = 1;
  bool passes = false;  // has_expert_pass()
  at::ScalarType x_dtype{};
  Autocast* autocast = nullptr;
  WeightGradients* later = nullptr;

  Gradients backward(Gradients&& gradients) override {
    if (in_one_pass()) return one_pass(gradients[0]);
    Factors factors;
    factors.rows = rows;
    factors.x = x.unpack();
    const at::Tensor saved_weights = weights.unpack(), saved_hidden = hidden.unpack();
    const at::Tensor whole_down = down.unpack(), whole_gate_up = gate_up.unpack();
    factors.dtype = whole_down.scalar_type();
    factors.shape = whole_gate_up.sizes().vec();
    factors.bias_share = bias_share;
    factors.dy = take_rows(cast_to(gradients[0].contiguous(), saved_hidden.scalar_type()), *rows);
    factors.shares = weights_of_rows(saved_weights, *rows, wide_of(saved_hidden.scalar_type()));
    ActivationGradients inner = activate_backward(
        activation, grouped_product_back(factors.dy, used_weight(autocast, whole_down), rows->begins),
        saved_hidden, factors.shares);
    if (const at::Tensor& bias = down_bias.unpack(); bias.defined())
      inner.weights.add_(
          grouped_dot(factors.dy, shared_bias(used_weight(autocast, bias), bias_share), rows->begins));
    factors.d_hidden = std::move(inner.hidden);
    factors.activated = std::move(inner.y);
    Gradients out(num_outputs());
    if (task_should_compute_output(0)) out[0] = of_x(factors, used_weight(autocast, whole_gate_up));
    if (task_should_compute_output(1)) out[1] = of_weights(inner.weights, saved_weights);
    if (put_off(factors)) return out;
    for (size_t edge = 2; edge < out.size(); ++edge)
      if (task_should_compute_output(edge)) out[edge] = factors.of(edge);
    return out;
  }
  void release_variables() override {
    for (Saved* saved : {&x, &weights, &hidden, &gate_up, &down, &down_bias}) saved->reset();
  }

 private:
  // Where every gradient is wanted now.
  bool in_one_pass() const {
    if (!passes || autocast != nullptr || (later != nullptr && later->defers())) return false;
    for (size_t edge = 0; edge < num_outputs(); ++edge)
      if (!task_should_compute_output(edge)) return false;
    return at::get_num_threads() == 1;
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

  at::Tensor of_x(const Factors& factors, const at::Tensor& whole_gate_up) const {
    const at::Tensor of_rows =
        grouped_product_back(factors.d_hidden, as_matrices(whole_gate_up), rows->begins);
    return cast_to(combine_rows(of_rows, *rows, factors.x.size(0)), x_dtype);
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
    for (size_t i = 2; i < num_outputs(); ++i) {
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
  if (!torch::autograd::compute_requires_grad(x, routing.weights, of.gate_up, of.down, of.gate_up_bias,
                                              of.down_bias))
    return nullptr;
  return of.gate_up_bias.defined()
             ? make_node<ExpertsNode>(x, routing.weights, of.gate_up, of.down, of.gate_up_bias, of.down_bias)
             : make_node<ExpertsNode>(x, routing.weights, of.gate_up, of.down);
}

// Two grouped products over all rows; saves the first one's result.
at::Tensor rows_by_products(const at::Tensor& x, const Routing& routing, const ExpertParameters& of,
                            const ExpertActivation& activation, const ExpertRows& rows, ExpertsNode* node) {
  Autocast* const autocast = Autocast::active();
  const at::Tensor hidden = once(Operator::product, [&] {
    return grouped_product(take_rows(x, rows), as_matrices(used_weight(autocast, of.gate_up)), rows.begins,
                           as_rows(used_weight(autocast, of.gate_up_bias)));
  });
  if (node != nullptr) node->hidden.save(hidden);
  return once(Operator::product, [&] {
    const at::Tensor shares = weights_of_rows(routing.weights, rows, wide_of(hidden.scalar_type()));
    return grouped_product(activate(activation, hidden, shares), used_weight(autocast, of.down), rows.begins,
                           shared_bias(used_weight(autocast, of.down_bias), of.bias_share), shares);
  });
}

// The same, one expert after the other.
at::Tensor rows_in_one_pass(const at::Tensor& x, const Routing& routing, const ExpertParameters& of,
                            const ExpertActivation& activation, const ExpertRows& rows, ExpertsNode* node) {
  const at::Tensor hidden = at::empty({rows.count(), 2 * of.down.size(2)}, x.options());
  const at::Tensor shares = weights_of_rows(routing.weights, rows, at::kFloat);
  const at::Tensor of_rows = pass_forward({rows, activation, x, of.gate_up, of.down, shares}, hidden);
  if (node != nullptr) node->hidden.save(hidden);
  return of_rows;
}

}  // namespace

at::Tensor experts(const at::Tensor& x, const Routing& routing, const ExpertParameters& of,
                   const ExpertActivation& activation, WeightGradients* later) {
  Autocast* const autocast = Autocast::active();
  const std::shared_ptr<ExpertsNode> node = node_of(x, routing, of);
  at::Tensor y;
  {
    const BelowAutograd below;
    const auto rows = std::make_shared<const ExpertRows>(sort_by_expert(routing.experts, of.gate_up.size(0)));
    const at::Tensor used = (autocast == nullptr ? x : autocast->value(x)).contiguous();
    const bool passes = autocast == nullptr && has_expert_pass(activation, used, of);
    if (node) {
      node->x.save(used);
      node->weights.save(routing.weights);
      node->gate_up.save_weight(of.gate_up);
      node->down.save_weight(of.down);
      node->down_bias.save_weight(of.down_bias);
      node->rows = rows;
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

}  // namespace model

Experts::Experts(const Shape& shape, const Names& names, const Init& init, const at::TensorOptions& options)
    : down(model::make_parameter({shape.experts, shape.hidden, shape.width}, init, options)), shape_(shape) {
  const int64_t columns = shape.activation.columns();
  std::vector<int64_t> sizes = {shape.experts, columns * shape.width};
  if (columns_apart()) sizes = {shape.experts, columns, shape.width};
  std::vector<int64_t> of_weights = sizes;
  of_weights.push_back(shape.hidden);
  gate_up = model::make_parameter(of_weights, init, options);
  add_slot(names.gate_up, gate_up, init);
  add_slot(names.down, down, init);
  if (!shape.bias) return;
  const Init zeros{Init::Kind::zeros, 0.0};
  gate_up_bias = model::make_parameter(sizes, zeros, options);
  down_bias = model::make_parameter({shape.experts, shape.hidden}, zeros, options);
  add_slot(names.gate_up_bias, gate_up_bias, zeros);
  add_slot(names.down_bias, down_bias, zeros);
}

at::Tensor Experts::local(const at::Tensor& x, const model::Routing& routing, const Batch& batch) {
  return model::experts(x, routing, {gate_up, down, gate_up_bias, down_bias, 1.0 / parts_}, shape_.activation,
                        batch.weight_gradients);
}

at::Tensor Experts::run(const at::Tensor& x, const model::Routing& routing, const Batch& batch,
                        model::Meanwhile& meanwhile) {
  if (instead.empty()) return local(x, routing, batch);
  const auto own = [](const at::Tensor& tokens, const model::Routing& chosen, Experts& experts,
                      const Batch& within,
                      model::Meanwhile&) { return experts.local(tokens, chosen, within); };
  return instead.call(own, x, routing, *this, batch, meanwhile);
}

at::Tensor Experts::forward(at::Tensor, const Batch&) {
  throw Error(ErrorCode::internal, "experts", "they were called without a routing", "call Experts::run");
}

}  // namespace heddle
