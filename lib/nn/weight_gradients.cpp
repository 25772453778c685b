// Draining: one node for each push, all run by one call of the autograd engine.
#include "heddle/nn/weight_gradients.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "heddle/model/autograd_node.h"

namespace heddle {
namespace {

struct WeightNode final : model::LayerNode {
  WeightNode() : LayerNode("WeightBackward") {}
  std::function<WeightGradients::Gradients()> compute;

  model::Gradients backward(model::Gradients&&) override { return std::exchange(compute, {})(); }
};

// A gradient without elements that only starts the nodes, on the leaves' device, so that they run where its
// gradients are accumulated.
at::Tensor start_on_device_of(const WeightGradients::Leaves& leaves) {
  for (const torch::autograd::Edge& edge : leaves)
    if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(edge.function.get()))
      return at::empty({0}, at::TensorOptions().device(leaf->variable.device()));
  return at::empty({0});
}

}  // namespace

void WeightGradients::push(Leaves leaves, std::function<Gradients()> compute) {
  waiting_.push_back({std::move(leaves), std::move(compute)});
}

bool WeightGradients::is_leaf(const torch::autograd::Edge& edge) {
  return dynamic_cast<const torch::autograd::AccumulateGrad*>(edge.function.get()) != nullptr;
}

WeightGradients::Accumulators WeightGradients::awaited() const {
  Accumulators out;
  for (const Waiting& one : waiting_)
    for (const torch::autograd::Edge& edge : one.leaves)
      if (edge.is_valid()) out.push_back(edge.function.get());
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void WeightGradients::drain() {
  defers_ = false;
  if (!begins_.empty()) {
    const Accumulators leaves = awaited();
    for (const auto& call : std::exchange(begins_, {})) call(leaves);
  }
  std::vector<Waiting> waiting = std::move(waiting_);
  waiting_.clear();
  if (!waiting.empty()) {
    const at::Tensor start = start_on_device_of(waiting.front().leaves);
    torch::autograd::edge_list roots(waiting.size());
    // The engine runs the youngest node first, so the first push gets the youngest.
    for (size_t i = waiting.size(); i-- > 0;) {
      std::shared_ptr<WeightNode> node(new WeightNode(), torch::autograd::deleteNode);
      node->add_input_metadata(start);
      node->set_next_edges(std::move(waiting[i].leaves));
      node->compute = std::move(waiting[i].compute);
      roots[i] = {std::move(node), 0};
    }
    waiting.clear();
    const std::vector<at::Tensor> starts(roots.size(), start);
    torch::autograd::Engine::get_default_engine().execute(roots, starts, false, false, true);
  }
  for (const auto& call : std::exchange(ends_, {})) call();
}

}  // namespace heddle
