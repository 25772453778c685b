// The node whose backward computes the unit again.
#include "core/parallel/recompute.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/parallel/forward_state.h"
#include "heddle/base/error.h"
#include "heddle/model/side_outputs.h"

namespace heddle::parallel {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// Edges: one for each input of the unit.
struct RecomputeNode final : torch::autograd::Node {
  RecomputeNode(Unit& unit, const Batch& batch, c10::Device device)
      : unit(unit), batch(batch), state(device) {}
  Unit& unit;
  std::vector<SavedVariable> inputs;
  Batch batch;
  ForwardState state;

  std::string name() const override { return "RecomputeBackward"; }

  variable_list apply(variable_list&& gradients) override {
    if (at::GradMode::is_enabled())
      throw Error(ErrorCode::internal, "parallel",
                  "a unit under activation checkpointing has no second derivative",
                  "call backward without create_graph");
    Tensors leaves;
    for (const SavedVariable& input : inputs) {
      const at::Tensor x = input.unpack();
      leaves.push_back(x.defined() ? x.detach().set_requires_grad(x.requires_grad()) : x);
    }
    run_back(run_again(leaves), std::move(gradients));
    variable_list out;
    for (at::Tensor& leaf : leaves)
      out.push_back(leaf.defined() ? std::exchange(leaf.mutable_grad(), {}) : at::Tensor());
    return out;
  }

  void release_variables() override {
    for (SavedVariable& input : inputs) input.reset_data();
    batch = {};
  }

 private:
  Tensors run_again(const Tensors& leaves) const {
    const at::AutoGradMode recording(true);
    const ForwardState::Again again(state);
    const SideOutputs::Again counted;
    return unit.forward(leaves, batch);
  }

  static void run_back(Tensors outputs, variable_list&& gradients) {
    variable_list roots, of_roots;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].defined() || !outputs[i].requires_grad() || !gradients[i].defined()) continue;
      roots.push_back(std::move(outputs[i]));
      of_roots.push_back(std::move(gradients[i]));
    }
    if (!roots.empty()) torch::autograd::backward(roots, of_roots);
  }
};

std::shared_ptr<RecomputeNode> make_node(Unit& unit, const Tensors& inputs, const Batch& batch) {
  std::shared_ptr<RecomputeNode> node(new RecomputeNode(unit, batch, first_device(inputs)),
                                      torch::autograd::deleteNode);
  torch::autograd::edge_list edges;
  for (const at::Tensor& input : inputs) {
    edges.push_back(input.defined() ? torch::autograd::impl::gradient_edge(input) : torch::autograd::Edge());
    node->inputs.emplace_back(input, false);
  }
  node->set_next_edges(std::move(edges));
  return node;
}

Tensors run_without_graph(Unit& unit, Tensors inputs, const RecomputeNode& node) {
  const at::NoGradGuard no_graph;
  const NoCastCache no_cache;
  return unit.forward(std::move(inputs), node.batch);
}

// An output may be an input or a view of one, so each becomes a tensor of its own.
void record(Tensors& outputs, const std::shared_ptr<RecomputeNode>& node) {
  for (at::Tensor& output : outputs) {
    const bool differentiable = output.defined() && output.is_floating_point();
    if (differentiable) output = output.variable_data();
    torch::autograd::set_history(differentiable ? output : at::Tensor(), node);
  }
}

}  // namespace

Tensors forward_nested(Unit& unit, Tensors inputs, const Batch& batch) {
  const std::shared_ptr<RecomputeNode> node = make_node(unit, inputs, batch);
  Tensors outputs = run_without_graph(unit, std::move(inputs), *node);
  node->state.forward_ended();
  record(outputs, node);
  return outputs;
}

}  // namespace heddle::parallel
