// The node computes the factors again in the backward.
#include "lib/nn/activation/situ.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>

#include "heddle/model/autograd_node.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::model {
namespace {

SituFactors wide_factors(const Situ& form, const at::Tensor& gate, const at::Tensor& up) {
  const at::ScalarType wide = accumulation_dtype(gate.scalar_type());
  return situ_factors(form, gate.to(wide), up.to(wide));
}

// Edges: gate, up.
struct SituNode final : LayerNode {
  SituNode() : LayerNode("SituBackward") {}
  Saved gate, up;
  Situ form;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor g = gate.unpack(), u = up.unpack();
    const SituFactors factors = wide_factors(form, g, u);
    const at::Tensor dy = gradients[0].to(factors.gate.scalar_type());
    at::Tensor d_up = dy * factors.gate;
    if (factors.by_up.defined()) d_up = d_up * factors.by_up;
    return {(dy * factors.up * factors.by_gate).to(g.scalar_type()), d_up.to(u.scalar_type())};
  }
  void release_variables() override {
    gate.reset();
    up.reset();
  }
};

}  // namespace

SituFactors situ_factors(const Situ& form, const at::Tensor& gate, const at::Tensor& up) {
  const at::Tensor bounded = at::tanh(gate / form.beta), open = at::sigmoid(gate);
  SituFactors out;
  out.gate = bounded * open * form.beta;
  out.by_gate = open * (1 - bounded * bounded) + out.gate * (1 - open);
  out.up = up;
  if (form.bound == 0) return out;
  const at::Tensor part = at::tanh(up / form.bound);
  out.up = part * form.bound;
  out.by_up = 1 - part * part;
  return out;
}

at::Tensor gated_by_situ(const Situ& form, const at::Tensor& gate, const at::Tensor& up) {
  return forward_with<SituNode>(
      [&](SituNode& node) {
        node.form = form;
        node.gate.save(gate);
        node.up.save(up);
      },
      [&] {
        const SituFactors factors = wide_factors(form, gate, up);
        return (factors.gate * factors.up).to(gate.scalar_type());
      },
      gate, up);
}

}  // namespace heddle::model
