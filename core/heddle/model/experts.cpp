// All experts as one node: rows sorted by expert, two grouped products, and the sum of each token's rows.
#include "heddle/model/experts.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>

#include <memory>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/model/autocast.h"
#include "heddle/model/autograd_node.h"
#include "heddle/model/cpu_rows.h"
#include "heddle/model/expert_rows.h"
#include "heddle/model/grouped_product.h"
#include "heddle/model/parameter.h"
#include "heddle/model/region.h"
#include "heddle/model/weight_gradients.h"

namespace heddle {
namespace model {
namespace {

using torch::autograd::Edge;

at::Tensor cast_to(const at::Tensor& gradient, at::ScalarType dtype) {
  return gradient.scalar_type() == dtype ? gradient : gradient.to(dtype);
}

at::Tensor used_weight(Autocast* autocast, const at::Tensor& weight) {
  return autocast == nullptr ? weight : autocast->weight(weight);
}

// The router's weight of each row, in wide arithmetic.
at::Tensor weights_of_rows(const at::Tensor& weights, const ExpertRows& rows, at::ScalarType wide) {
  return at::index_select(weights.reshape({-1}), 0, rows.slots).to(wide);
}

// What the gradients of both parameters are made of.
struct Factors {
  at::Tensor x, d_hidden, activated, dy;  // [tokens, hidden], [rows, ...], [rows, width], [rows, hidden]
  std::shared_ptr<const ExpertRows> rows;
  at::ScalarType dtype{};  // of the parameters

  at::Tensor of_gate_up() const {
    return cast_to(grouped_weight_gradient(d_hidden, take_rows(x, *rows), rows->begins), dtype);
  }
  at::Tensor of_down() const { return cast_to(grouped_weight_gradient(dy, activated, rows->begins), dtype); }
};

// Edges: x, the routing's weights, gate_up, down.
struct ExpertsNode final : LayerNode {
  ExpertsNode() : LayerNode("ExpertsBackward") {}
  Saved x, weights, hidden, gate_up, down;
  std::shared_ptr<const ExpertRows> rows;
  ExpertActivation activation;
  at::ScalarType x_dtype{};
  Autocast* autocast = nullptr;
  WeightGradients* later = nullptr;

  Gradients backward(Gradients&& gradients) override {
    Factors factors;
    factors.rows = rows;
    factors.x = x.unpack();
    const at::Tensor saved_weights = weights.unpack(), saved_hidden = hidden.unpack();
    const at::Tensor whole_down = down.unpack(), whole_gate_up = gate_up.unpack();
    factors.dtype = whole_down.scalar_type();
    factors.dy = take_rows(cast_to(gradients[0].contiguous(), saved_hidden.scalar_type()), *rows);
    const at::Tensor row_weights = weights_of_rows(saved_weights, *rows, wide_of(saved_hidden.scalar_type()));
    ActivationGradients inner = activate_backward(
        activation, grouped_product_back(factors.dy, used_weight(autocast, whole_down), rows->begins),
        saved_hidden, row_weights);
    factors.d_hidden = std::move(inner.hidden);
    factors.activated = std::move(inner.y);
    Gradients out(4);
    if (task_should_compute_output(0)) out[0] = of_x(factors, used_weight(autocast, whole_gate_up));
    if (task_should_compute_output(1)) out[1] = of_weights(inner.weights, saved_weights);
    if (put_off(factors)) return out;
    if (task_should_compute_output(2)) out[2] = factors.of_gate_up();
    if (task_should_compute_output(3)) out[3] = factors.of_down();
    return out;
  }
  void release_variables() override {
    for (Saved* saved : {&x, &weights, &hidden, &gate_up, &down}) saved->reset();
  }

 private:
  at::Tensor of_x(const Factors& factors, const at::Tensor& whole_gate_up) const {
    const at::Tensor of_rows = grouped_product_back(factors.d_hidden, whole_gate_up, rows->begins);
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
    const Edge first = next_edge(2), second = next_edge(3);
    for (const Edge& edge : {first, second})
      if (edge.is_valid() && !WeightGradients::is_leaf(edge)) return false;
    if (!first.is_valid() && !second.is_valid()) return true;
    later->push({first, second},
                [factors, with_first = first.is_valid(), with_second = second.is_valid()]() -> Gradients {
                  return {with_first ? factors.of_gate_up() : at::Tensor(),
                          with_second ? factors.of_down() : at::Tensor()};
                });
    return true;
  }
};

}  // namespace

at::Tensor experts(const at::Tensor& x, const Routing& routing, const at::Tensor& gate_up,
                   const at::Tensor& down, const ExpertActivation& activation, WeightGradients* later) {
  Autocast* const autocast = Autocast::active();
  std::shared_ptr<ExpertsNode> node;
  if (torch::autograd::compute_requires_grad(x, routing.weights, gate_up, down))
    node = make_node<ExpertsNode>(x, routing.weights, gate_up, down);
  at::Tensor y;
  {
    const BelowAutograd below;
    const auto rows = std::make_shared<const ExpertRows>(sort_by_expert(routing.experts, gate_up.size(0)));
    const at::Tensor used = (autocast == nullptr ? x : autocast->value(x)).contiguous();
    if (node) {
      node->x.save(used);
      node->weights.save(routing.weights);
      node->gate_up.save_weight(gate_up);
      node->down.save_weight(down);
      node->rows = rows;
      node->activation = activation;
      node->x_dtype = x.scalar_type();
      node->autocast = autocast;
      node->later = later;
    }
    const at::Tensor hidden = once(Operator::product, [&] {
      return grouped_product(take_rows(used, *rows), used_weight(autocast, gate_up), rows->begins);
    });
    if (node) node->hidden.save(hidden);
    const at::Tensor of_rows = once(Operator::product, [&] {
      const at::Tensor row_weights = weights_of_rows(routing.weights, *rows, wide_of(hidden.scalar_type()));
      return grouped_product(activate(activation, hidden, row_weights), used_weight(autocast, down),
                             rows->begins);
    });
    y = cast_to(combine_rows(of_rows, *rows, x.size(0)), x.scalar_type());
  }
  if (node) torch::autograd::set_history(y, node);
  return y;
}

}  // namespace model

Experts::Experts(const Shape& shape, const Names& names, const Init& init, const at::TensorOptions& options)
    : gate_up(model::make_parameter({shape.experts, shape.activation.columns() * shape.width, shape.hidden},
                                    init, options)),
      down(model::make_parameter({shape.experts, shape.hidden, shape.width}, init, options)),
      shape_(shape) {
  add_slot(names.gate_up, gate_up, init);
  add_slot(names.down, down, init);
}

at::Tensor Experts::local(const at::Tensor& x, const model::Routing& routing, const Batch& batch) {
  return model::experts(x, routing, gate_up, down, shape_.activation, batch.weight_gradients);
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
