// The gated unit and its backward; silu(gate) is computed again in the backward rather than kept.
#include "heddle/model/swiglu.h"

#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include "heddle/model/autograd_node.h"

namespace heddle::model {
namespace {

struct SwigluNode final : LayerNode {
  SwigluNode() : LayerNode("SwigluBackward") {}
  torch::autograd::SavedVariable gate, up;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor saved_gate = gate.unpack();
    at::Tensor d_gate = at::silu_backward(at::mul(gradients[0], up.unpack()), saved_gate);
    return {d_gate, at::silu(saved_gate).mul_(gradients[0])};
  }
  void release_variables() override {
    gate.reset_data();
    up.reset_data();
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  at::Tensor y;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    y = at::silu(gate).mul_(up);
  }
  if (torch::autograd::compute_requires_grad(gate, up)) {
    auto node = make_node<SwigluNode>(gate, up);
    node->gate = torch::autograd::SavedVariable(gate, false);
    node->up = torch::autograd::SavedVariable(up, false);
    torch::autograd::set_history(y, node);
  }
  return y;
}

}  // namespace heddle::model
