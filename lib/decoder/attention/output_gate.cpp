// The nodes. The sigmoid is computed again in the backward.
#include "lib/decoder/attention/output_gate.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <memory>

#include "heddle/model/autograd_node.h"

namespace heddle::decoder {
namespace {

using model::BelowAutograd;
using model::Gradients;

// Edge: both.
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

// Edges: y, the gate.
struct OutputGateNode final : model::LayerNode {
  OutputGateNode() : LayerNode("OutputGateBackward") {}
  model::Saved y, gate;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor open = at::sigmoid(gate.unpack());
    return {gradients[0] * open, at::sigmoid_backward(gradients[0] * y.unpack(), open)};
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

at::Tensor gated_output(const at::Tensor& y, const at::Tensor& gate) {
  return model::forward_with<OutputGateNode>(
      [&](OutputGateNode& node) {
        node.y.save(y);
        node.gate.save(gate);
      },
      [&] { return y * at::sigmoid(gate); }, y, gate);
}

}  // namespace heddle::decoder
