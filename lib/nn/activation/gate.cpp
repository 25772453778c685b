// The nodes. The activation is computed again in the backward rather than kept.
#include "heddle/nn/activation.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/threshold_backward.h>

#include <utility>

#include "heddle/model/autograd_node.h"

namespace heddle::model {
namespace {

at::Tensor apply_activation(Activation activation, const at::Tensor& x) {
  switch (activation) {
    case Activation::silu:
      return at::silu(x);
    case Activation::gelu:
      return at::gelu(x);
    case Activation::gelu_tanh:
      return at::gelu(x, "tanh");
    case Activation::relu:
      return at::clamp_min(x, 0);
    case Activation::relu2:
      return at::clamp_min(x, 0).square_();
  }
  return x;
}

// dy times the derivative at x.
at::Tensor activation_backward(Activation activation, const at::Tensor& dy, const at::Tensor& x) {
  switch (activation) {
    case Activation::silu:
      return at::silu_backward(dy, x);
    case Activation::gelu:
      return at::gelu_backward(dy, x);
    case Activation::gelu_tanh:
      return at::gelu_backward(dy, x, "tanh");
    case Activation::relu:
      return at::threshold_backward(dy, x, 0);
    case Activation::relu2:
      return at::mul(dy, at::clamp_min(x, 0).mul_(2));
  }
  return dy;
}

// Edges: gate (or x) and, of a gated activation, up.
struct GateNode final : LayerNode {
  GateNode() : LayerNode("GateBackward") {}
  Saved gate, up;
  Activation activation = Activation::silu;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor dy = std::move(gradients[0]), x = gate.unpack();
    if (num_outputs() == 1) return {activation_backward(activation, dy, x)};
    at::Tensor d_gate = activation_backward(activation, at::mul(dy, up.unpack()), x);
    return {std::move(d_gate), apply_activation(activation, x).mul_(dy)};
  }
  void release_variables() override {
    gate.reset();
    up.reset();
  }
};

// Edges: gate, up. Bounds as at::clamp: a gradient passes what is on the bound.
struct GateWithinNode final : LayerNode {
  GateWithinNode() : LayerNode("GateWithinBackward") {}
  Saved gate, up;
  Activation activation = Activation::silu;
  double limit = 0;
  bool before = false;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor &dy = gradients[0], given = gate.unpack(), u = up.unpack();
    const at::Tensor g = before ? at::clamp(given, {}, limit) : given;
    const at::Tensor open = apply_activation(activation, g);
    const at::Tensor inner = activation_backward(activation, dy * at::clamp(u, -limit, limit), g);
    const at::Tensor most = before ? open : at::clamp(open, {}, limit);
    return {inner * (before ? given : open).le(limit), dy * most * at::clamp(u, -limit, limit).eq(u)};
  }
  void release_variables() override {
    gate.reset();
    up.reset();
  }
};

}  // namespace

at::Tensor gated_within(double limit, Activation activation, const at::Tensor& gate, const at::Tensor& up,
                        bool before) {
  const auto open = [&] {
    if (before) return apply_activation(activation, at::clamp(gate, {}, limit));
    return at::clamp(apply_activation(activation, gate), {}, limit);
  };
  return forward_with<GateWithinNode>(
      [&](GateWithinNode& node) {
        node.activation = activation;
        node.limit = limit;
        node.before = before;
        node.gate.save(gate);
        node.up.save(up);
      },
      [&] { return open() * at::clamp(up, -limit, limit); }, gate, up);
}

at::Tensor gated(Activation activation, const at::Tensor& gate, const at::Tensor& up) {
  if (activation == Activation::silu) return swiglu(gate, up);
  return forward_with<GateNode>(
      [&](GateNode& node) {
        node.activation = activation;
        node.gate.save(gate);
        node.up.save(up);
      },
      [&] { return apply_activation(activation, gate).mul_(up); }, gate, up);
}

at::Tensor activated(Activation activation, const at::Tensor& x) {
  return forward_with<GateNode>(
      [&](GateNode& node) {
        node.activation = activation;
        node.gate.save(x);
      },
      [&] { return apply_activation(activation, x); }, x);
}

}  // namespace heddle::model
