// The node computes the norm again in the backward.
#include "lib/decoder/delta_net/gated_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>
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

at::Tensor by_heads(const at::Tensor& x, const at::Tensor& weight) {
  return x.reshape({-1, weight.numel()}).to(wide_of(x.scalar_type()));
}

struct Normal {
  at::Tensor x, root;  // x times root, and 1 / its root mean square
};

Normal normalised(const at::Tensor& x, const at::Tensor& weight, double eps) {
  at::Tensor heads = by_heads(x, weight);
  at::Tensor root = (heads * heads).mean(-1, true).add_(eps).rsqrt_();
  return {heads * root, std::move(root)};
}

// Edges: x, the gate, the weight.
struct GatedNormNode final : model::LayerNode {
  GatedNormNode() : LayerNode("GatedNormBackward") {}
  model::Saved x, gate, weight;
  double eps = 0;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor saved = x.unpack(), z = gate.unpack(), w = weight.unpack();
    if (saved.is_meta()) return {at::empty_like(saved), at::empty_like(z), at::empty_like(w)};
    const Normal normal = normalised(saved, w, eps);
    const at::ScalarType wide = normal.x.scalar_type();
    const at::Tensor gates = by_heads(z, w), dy = by_heads(gradients[0], w);
    const at::Tensor d_scaled = dy * at::silu(gates);  // of weight * normalised
    Gradients out(3);
    if (task_should_compute_output(0)) {
      const at::Tensor dn = d_scaled * w.to(wide);
      out[0] = ((dn - normal.x * (dn * normal.x).mean(-1, true)) * normal.root)
                   .to(saved.scalar_type())
                   .view(saved.sizes());
    }
    if (task_should_compute_output(1))
      out[1] = at::silu_backward(dy * (normal.x * w.to(wide)), gates).to(z.scalar_type()).view(z.sizes());
    if (task_should_compute_output(2)) out[2] = (d_scaled * normal.x).sum(0).to(w.scalar_type());
    return out;
  }
  void release_variables() override {
    x.reset();
    gate.reset();
    weight.reset();
  }
};

at::Tensor computed(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight, double eps) {
  if (x.is_meta()) return at::empty_like(x, at::MemoryFormat::Contiguous);
  const at::Tensor normal = normalised(x, weight, eps).x.to(x.scalar_type());
  const at::Tensor scaled = (normal * weight).to(wide_of(x.scalar_type()));
  return (scaled * at::silu(by_heads(gate, weight))).to(x.scalar_type()).view(x.sizes());
}

}  // namespace

at::Tensor gated_norm(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight, double eps) {
  return model::forward_with<GatedNormNode>(
      [&](GatedNormNode& node) {
        node.x.save(x);
        node.gate.save(gate);
        node.weight.save_weight(weight);
        node.eps = eps;
      },
      [&] { return computed(x, gate, weight, eps); }, x, gate, weight);
}

GatedNorm::GatedNorm(int64_t width, double eps, const at::TensorOptions& options) : eps_(eps) {
  const Init init{Init::Kind::ones, 0.0};
  weight = model::make_parameter({width}, init, options);
  add_slot("weight", weight, init);
}

at::Tensor GatedNorm::apply(const at::Tensor& x, const at::Tensor& gate, const Batch& batch) {
  return output(gated_norm(input(x, batch), gate, weight, eps_), batch);
}

at::Tensor GatedNorm::forward(at::Tensor, const Batch&) {
  throw Error(ErrorCode::internal, "model", "a norm with a gate takes two tensors",
              "call apply(), not call()");
}

}  // namespace heddle::decoder
