// The node computes the gate and the norm again in the backward.
#include "lib/decoder/mamba/group_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include <memory>
#include <utility>

#include "heddle/model/autograd_node.h"
#include "lib/nn/cpu/cpu_rows.h"

namespace heddle::decoder {
namespace {

using model::BelowAutograd;
using model::Gradients;
using model::wide_of;

// All [tokens, groups, group], wide; root [tokens, groups, 1].
struct GroupNormal {
  at::Tensor gate;     // silu of it
  at::Tensor x, root;  // x times gate times root, and 1 / the root mean square
};

at::Tensor by_groups(const at::Tensor& x, int64_t group) {
  return x.reshape({x.size(0), -1, group}).to(wide_of(x.scalar_type()));
}

GroupNormal group_normalised(const at::Tensor& x, const at::Tensor& gate, int64_t group, double eps) {
  at::Tensor opened = at::silu(by_groups(gate, group));
  const at::Tensor gated = by_groups(x, group) * opened;
  at::Tensor root = (gated * gated).mean(-1, true).add_(eps).rsqrt_();
  return {std::move(opened), gated * root, std::move(root)};
}

// Edges: x, the gate, the weight.
struct GatedGroupNormNode final : model::LayerNode {
  GatedGroupNormNode() : LayerNode("GatedGroupNormBackward") {}
  model::Saved x, gate, weight;
  int64_t group = 1;
  double eps = 0;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor saved = x.unpack(), z = gate.unpack(), w = weight.unpack();
    const GroupNormal normal = group_normalised(saved, z, group, eps);
    const at::Tensor dy = by_groups(gradients[0], group);
    const at::Tensor dn = dy * w.to(dy.scalar_type()).view({-1, group});
    const at::Tensor gated = (dn - normal.x * (dn * normal.x).mean(-1, true)) * normal.root;
    Gradients out(3);
    if (task_should_compute_output(0))
      out[0] = (gated * normal.gate).to(saved.scalar_type()).view(saved.sizes());
    if (task_should_compute_output(1))
      out[1] = at::silu_backward(gated * by_groups(saved, group), by_groups(z, group))
                   .to(z.scalar_type())
                   .view(z.sizes());
    if (task_should_compute_output(2)) out[2] = (dy * normal.x).sum(0).flatten().to(w.scalar_type());
    return out;
  }
  void release_variables() override {
    x.reset();
    gate.reset();
    weight.reset();
  }
};

at::Tensor group_computed(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight,
                          int64_t group, double eps) {
  return group_normalised(x, gate, group, eps).x.to(x.scalar_type()).flatten(1) * weight;
}

}  // namespace

at::Tensor gated_group_norm(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& weight,
                            int64_t group, double eps) {
  return model::forward_with<GatedGroupNormNode>(
      [&](GatedGroupNormNode& node) {
        node.x.save(x);
        node.gate.save(gate);
        node.weight.save_weight(weight);
        node.group = group;
        node.eps = eps;
      },
      [&] { return group_computed(x, gate, weight, group, eps); }, x, gate, weight);
}

}  // namespace heddle::decoder
