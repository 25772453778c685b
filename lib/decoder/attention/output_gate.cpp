// Autograd nodes of output gates. The backward recomputes the sigmoid.
#include "lib/decoder/attention/output_gate.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/softplus_backward.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <memory>

#include "heddle/model/autograd_node.h"

namespace heddle::decoder {
namespace {

using model::BelowAutograd;
using model::Gradients;

// Edge: `both`.
struct SplitGateNode final : model::LayerNode {
  SplitGateNode() : LayerNode("SplitGateBackward") {}
  int64_t tokens = 0, heads = 0, width = 0;
  at::TensorOptions options;

  Gradients backward(Gradients&& gradients) override {
    for (at::Tensor& one : gradients)
      one = one.defined() ? one.reshape({tokens, heads, width}) : at::zeros({tokens, heads, width}, options);
    return {at::stack({gradients[0], gradients[1]}, 2).view({tokens, heads * 2 * width})};
  }
};

using Function = OutputGate::Function;

at::Tensor opened(Function function, const at::Tensor& gate) {
  return function == Function::sigmoid ? at::sigmoid(gate) : at::softplus(gate);
}

// Returns y as [tokens, gates, elements per gate].
at::Tensor by_gate(const at::Tensor& y, const at::Tensor& gate) {
  return y.unflatten(1, {gate.size(1), -1});
}

// Edges: y, gate.
struct OutputGateNode final : model::LayerNode {
  OutputGateNode() : LayerNode("OutputGateBackward") {}
  model::Saved y, gate;
  Function function = Function::sigmoid;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor g = gate.unpack(), open = opened(function, g);
    const at::Tensor dy = by_gate(gradients[0], g);
    const at::Tensor d_open = (dy * by_gate(y.unpack(), g)).sum(2);
    return {(dy * open.unsqueeze(2)).flatten(1), function == Function::sigmoid
                                                     ? at::sigmoid_backward(d_open, open)
                                                     : at::softplus_backward(d_open, g, 1, 20)};
  }
  void release_variables() override {
    y.reset();
    gate.reset();
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> split_gate(const at::Tensor& both, int64_t width) {
  const int64_t tokens = both.size(0), heads = both.size(1) / (2 * width);
  std::shared_ptr<SplitGateNode> node;
  if (torch::autograd::compute_requires_grad(both)) {
    node = model::make_node<SplitGateNode>(both);
    node->tokens = tokens, node->heads = heads, node->width = width;
    node->options = both.options().requires_grad(false);
  }
  std::pair<at::Tensor, at::Tensor> parts;
  {
    const BelowAutograd below;
    const at::Tensor all = both.reshape({tokens, heads, 2, width});
    const auto part = [&](int64_t which) {
      return all.select(2, which).clone(at::MemoryFormat::Contiguous).view({tokens, heads * width});
    };
    parts = {part(0), part(1)};
  }
  if (!node) return parts;
  torch::autograd::set_history(parts.first, node);
  torch::autograd::set_history(parts.second, node);
  return parts;
}

at::Tensor gated_output(const at::Tensor& y, const at::Tensor& gate, Function function) {
  return model::forward_with<OutputGateNode>(
      [&](OutputGateNode& node) {
        node.function = function;
        node.y.save(y);
        node.gate.save(gate);
      },
      [&] { return (by_gate(y, gate) * opened(function, gate).unsqueeze(2)).flatten(1); }, y, gate);
}

}  // namespace heddle::decoder
