// The node computes the norm again in the backward.
#include "lib/decoder/recurrence/gated_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include <memory>
#include <utility>

#include "core/model/parameter.h"
#include "heddle/base/error.h"
#include "heddle/model/autograd_node.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

using model::BelowAutograd;
using model::Gradients;
using model::wide_of;

// All [heads, groups of a head, group].
struct Groups {
  int64_t groups, group;
  Groups(const at::Tensor& weight, const GatedNormForm& form)
      : groups(form.group == 0 ? 1 : weight.numel() / form.group),
        group(form.group == 0 ? weight.numel() : form.group) {}
  at::Tensor narrow(const at::Tensor& x) const { return x.reshape({-1, groups, group}); }
  at::Tensor operator()(const at::Tensor& x) const { return narrow(x).to(wide_of(x.scalar_type())); }
  at::Tensor weights(const at::Tensor& weight) const { return weight.view({groups, group}); }
};

struct Normal {
  at::Tensor x, root;  // x times root, and 1 / its root mean square
};

Normal normalised(const at::Tensor& groups, double eps) {
  at::Tensor root = (groups * groups).mean(-1, true).add_(eps).rsqrt_();
  return {groups * root, std::move(root)};
}

at::Tensor opened(const at::Tensor& gates, const GatedNormForm& form) {
  return form.sigmoid ? at::sigmoid(gates) : at::silu(gates);
}

// Edges: x, the gate, the weight.
struct GatedNormNode final : model::LayerNode {
  GatedNormNode() : LayerNode("GatedNormBackward") {}
  model::Saved x, gate, weight;
  GatedNormForm form;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor saved = x.unpack(), z = gate.unpack(), w = weight.unpack();
    const Groups by(w, form);
    const Normal normal = normalised(by(saved), form.eps);
    const at::Tensor gates = by(z), dy = by(gradients[0]), open = opened(gates, form);
    const at::Tensor wide = by.weights(w.to(normal.x.scalar_type()));
    const at::Tensor d_scaled = dy * open;  // of weight * normalised
    Gradients out(3);
    if (task_should_compute_output(0)) {
      const at::Tensor dn = d_scaled * wide;
      out[0] = ((dn - normal.x * (dn * normal.x).mean(-1, true)) * normal.root)
                   .to(saved.scalar_type())
                   .view(saved.sizes());
    }
    if (task_should_compute_output(1)) {
      const at::Tensor d_open = dy * (normal.x * wide);
      out[1] = (form.sigmoid ? at::sigmoid_backward(d_open, open) : at::silu_backward(d_open, gates))
                   .to(z.scalar_type())
                   .view(z.sizes());
    }
    if (task_should_compute_output(2)) out[2] = (d_scaled * normal.x).sum(0).flatten().to(w.scalar_type());
    return out;
  }
  void release_variables() override {
    x.reset();
    gate.reset();
    weight.reset();
  }
};

at::Tensor gated(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight,
                 const GatedNormForm& form) {
  const Groups by(weight, form);
  const at::ScalarType wide = wide_of(x.scalar_type());
  const at::Tensor normal = normalised(by(x), form.eps).x, weights = by.weights(weight);
  const at::Tensor scaled =
      form.rounded ? (normal.to(x.scalar_type()) * weights).to(wide) : normal * weights.to(wide);
  return (scaled * opened(by(gate), form)).to(x.scalar_type()).view(x.sizes());
}

}  // namespace

at::Tensor gated_norm(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight,
                      const GatedNormForm& form) {
  return model::forward_with<GatedNormNode>(
      [&](GatedNormNode& node) {
        node.x.save(x);
        node.gate.save(gate);
        node.weight.save_weight(weight);
        node.form = form;
      },
      [&] { return gated(x, gate, weight, form); }, x, gate, weight);
}

GatedNorm::GatedNorm(int64_t width, const GatedNormForm& form, const at::TensorOptions& options)
    : form_(form) {
  const Init init{Init::Kind::ones, 0.0};
  weight = model::make_parameter({width}, init, options);
  add_slot("weight", weight, init);
}

at::Tensor GatedNorm::apply(const at::Tensor& x, const at::Tensor& gate, const Batch& batch) {
  return output(gated_norm(input(x, batch), gate, weight, form_), batch);
}

at::Tensor GatedNorm::forward(at::Tensor, const Batch&) {
  throw Error(ErrorCode::internal, "model", "a norm with a gate takes two tensors",
              "call apply(), not call()");
}

}  // namespace heddle::decoder
