// The guards around every backward of the layers, and the node that differentiates its forward by autograd.
#include "heddle/model/autograd_node.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "heddle/base/error.h"

namespace heddle::model {

LayerNode::~LayerNode() = default;

Gradients LayerNode::apply(Gradients&& gradients) {
  if (at::GradMode::is_enabled())
    throw Error(ErrorCode::internal, "model", std::string(name_) + " has no second derivative",
                "call backward without create_graph");
  bool any = false;
  for (const at::Tensor& gradient : gradients) any = any || gradient.defined();
  if (!any) return Gradients(num_outputs());
  at::AutoDispatchBelowADInplaceOrView below;
  return backward(std::move(gradients));
}

namespace {

// Operators of ATen in this scope are recorded within a backward, which runs below autograd.
class AboveAutograd {
 private:
  at::AutoGradMode records_{true};
  c10::impl::ForceDispatchKeyGuard above_{c10::impl::tls_local_dispatch_key_set().included_,
                                          (c10::impl::tls_local_dispatch_key_set().excluded_ -
                                           c10::autograd_dispatch_keyset_with_ADInplaceOrView) |
                                              c10::autocast_dispatch_keyset};
};

// Edges: the inputs.
struct RecomputedNode final : LayerNode {
  explicit RecomputedNode(const char* name) : LayerNode(name) {}
  std::vector<Saved> inputs;
  RecomputedFormula formula;
  RecomputedCost cost;

  Gradients backward(Gradients&& gradients) override {
    std::vector<at::Tensor> given, asked;
    for (Saved& one : inputs) given.push_back(one.unpack());
    Gradients out(given.size());
    if (cost && given[0].is_meta()) {
      cost(given, /*backward=*/true);
      for (size_t i = 0; i < given.size(); ++i)
        if (task_should_compute_output(i)) out[i] = at::empty_like(given[i]);
      return out;
    }
    const AboveAutograd above;
    for (size_t i = 0; i < given.size(); ++i) {
      given[i] = given[i].detach();
      if (task_should_compute_output(i)) asked.push_back(given[i].requires_grad_());
    }
    if (asked.empty()) return out;
    const Gradients found =
        torch::autograd::grad({formula(given, /*backward=*/true)}, asked, std::move(gradients), std::nullopt,
                              /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0, next = 0; i < given.size(); ++i)
      if (given[i].requires_grad()) out[i] = found[next++];
    return out;
  }
  void release_variables() override {
    for (Saved& one : inputs) one.reset();
    formula = nullptr;  // and the tensors that it captured
  }
};

}  // namespace

at::Tensor recomputed(const char* name, std::vector<at::Tensor> values, std::vector<at::Tensor> weights,
                      RecomputedFormula formula, RecomputedCost cost) {
  const size_t first_weight = values.size();
  values.insert(values.end(), weights.begin(), weights.end());
  std::shared_ptr<RecomputedNode> node;
  const auto trains = [](const at::Tensor& one) { return torch::autograd::compute_requires_grad(one); };
  if (std::any_of(values.begin(), values.end(), trains)) {
    node = std::shared_ptr<RecomputedNode>(new RecomputedNode(name), torch::autograd::deleteNode);
    torch::autograd::edge_list edges;
    node->inputs.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      edges.push_back(edge_to(values[i]));
      if (i < first_weight)
        node->inputs[i].save(values[i]);
      else
        node->inputs[i].save_weight(values[i]);
    }
    node->set_next_edges(std::move(edges));
    node->formula = formula;
    node->cost = cost;
  }
  at::Tensor y;
  {
    const BelowAutograd below;
    if (cost && values[0].is_meta()) cost(values, /*backward=*/false);
    y = formula(values, /*backward=*/false);
  }
  if (node) torch::autograd::set_history(y, node);
  return y;
}

}  // namespace heddle::model
