// Factors out of hashes of tokens and columns, by operators that wrap at 64 bits.
#include <ATen/ops/arange.h>

#include <utility>

#include "heddle/model/autograd_node.h"
#include "heddle/nn/router.h"
#include "lib/nn/random/hash.h"

namespace heddle::model {
namespace {

constexpr auto kStep = static_cast<int64_t>(kGolden);

// int64 [tokens, 1]: of the row's tokens, the place in the row and the layer.
at::Tensor keys_of(const Batch& batch, int64_t layer) {
  const at::Tensor tokens = batch.tokens.to(at::kLong);
  const at::Tensor places = mixed((at::arange(tokens.size(1), tokens.options()) + 1) * kStep);
  at::Tensor each = mixed(tokens * kStep + places);
  if (batch.padding.defined()) each = each.masked_fill(batch.padding, 0);
  const at::Tensor rows = each.sum(1, true);
  return mixed(rows + places + mixed(at::arange(layer + 1, layer + 2, tokens.options()) * kStep))
      .reshape({-1, 1});
}

// [tokens, columns]
at::Tensor factors(const at::Tensor& keys, double noise, const at::Tensor& like) {
  const at::Tensor bits = mixed(keys + (at::arange(like.size(1), keys.options()) + 1) * kStep);
  const at::ScalarType wide = like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  constexpr double kOneBit = 1.0 / (int64_t{1} << 23);
  return shifted(bits, 41).to(wide).mul_(2 * noise * kOneBit).add_(1 - noise);
}

// Edge: x.
struct JitterNode final : LayerNode {
  JitterNode() : LayerNode("JitterBackward") {}
  Saved keys;
  double noise = 0;

  Gradients backward(Gradients&& gradients) override {
    const at::Tensor& dy = gradients[0];
    return {(dy * factors(keys.unpack(), noise, dy)).to(dy.scalar_type())};
  }
  void release_variables() override { keys.reset(); }
};

}  // namespace

at::Tensor jittered(const at::Tensor& x, double noise, int64_t layer, const Batch& batch) {
  std::shared_ptr<JitterNode> node;
  if (torch::autograd::compute_requires_grad(x)) {
    node = make_node<JitterNode>(x);
    node->noise = noise;
  }
  at::Tensor y, keys;
  {
    const BelowAutograd below;
    keys = keys_of(batch, layer);
    y = (x * factors(keys, noise, x)).to(x.scalar_type());
  }
  if (!node) return y;
  node->keys.save(keys);
  torch::autograd::set_history(y, node);
  return y;
}

}  // namespace heddle::model
