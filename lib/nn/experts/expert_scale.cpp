// One node. Experts are distinct within a token, so the scale's gradient is summed in a fixed order.
#include "lib/nn/experts/expert_scale.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/zeros.h>

#include "heddle/model/autograd_node.h"

namespace heddle::model {
namespace {

at::Tensor factors_of(const at::Tensor& experts, const at::Tensor& scale, at::ScalarType dtype) {
  const at::Tensor of_each = scale.unsqueeze(0).expand({experts.size(0), scale.numel()});
  return at::gather(of_each, 1, experts.clamp_min(0)).to(dtype);
}

// Edges: weights, scale.
struct ExpertScaleNode final : LayerNode {
  ExpertScaleNode() : LayerNode("ExpertScaleBackward") {}
  Saved weights, experts, scale;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor &dy = gradients[0], given = weights.unpack(), chosen = experts.unpack();
    const at::Tensor& of = scale.unpack();
    Gradients out(2);
    if (task_should_compute_output(0)) out[0] = dy * factors_of(chosen, of, dy.scalar_type());
    if (!task_should_compute_output(1)) return out;
    const int64_t count = of.numel();  // the column after the last is of no expert
    const at::Tensor sums = at::zeros({chosen.size(0), count + 1}, dy.options());
    sums.scatter_(1, chosen.masked_fill(chosen.lt(0), count), dy * given);
    out[1] = sums.sum(0).narrow(0, 0, count).to(of.scalar_type());
    return out;
  }
  void release_variables() override {
    weights.reset();
    experts.reset();
    scale.reset();
  }
};

}  // namespace

at::Tensor scaled_by_expert(const at::Tensor& weights, const at::Tensor& experts, const at::Tensor& scale) {
  return forward_with<ExpertScaleNode>(
      [&](ExpertScaleNode& node) {
        node.weights.save(weights);
        node.experts.save(experts);
        node.scale.save_weight(scale);
      },
      [&] { return weights * factors_of(experts, scale, weights.scalar_type()); }, weights, scale);
}

}  // namespace heddle::model
