// Dropout and its node.
#include "heddle/nn/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include <string>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/model/autograd_node.h"

namespace heddle {
namespace model {
namespace {

struct Drop {
  double p = 0;
  uint64_t salt = 0;

  at::Tensor of(const at::Tensor& x, const at::Tensor& keys) const {
    if (p >= 1) return at::zeros_like(x);
    const at::Tensor kept = uniform_draws(keys, x.size(-1), salt).ge(p).view(x.sizes());
    return (x * (1 / (1 - p))).mul_(kept);
  }
};

// Edge: x.
struct DropoutNode final : LayerNode {
  DropoutNode() : LayerNode("DropoutBackward") {}
  Drop drop;
  Saved keys;

  Gradients backward(Gradients&& gradients) override { return {drop.of(gradients[0], keys.unpack())}; }
  void release_variables() override { keys.reset(); }
};

void check_rows(const at::Tensor& x, const at::Tensor& draws) {
  if (x.numel() == draws.numel() * x.size(-1)) return;
  throw Error(ErrorCode::internal, "dropout",
              "its input has " + std::to_string(x.numel() / x.size(-1)) +
                  " rows, and the batch has keys for " + std::to_string(draws.numel()) + " tokens",
              "drop where a rank has a row for each token of its batch");
}

}  // namespace

at::Tensor dropout(const at::Tensor& x, const at::Tensor& draws, double p, uint64_t salt) {
  check_rows(x, draws);
  const Drop drop{p, salt};
  return forward_with<DropoutNode>(
      [&](DropoutNode& node) {
        node.drop = drop;
        node.keys.save(draws);
      },
      [&] { return drop.of(x, draws); }, x);
}

}  // namespace model

ModuleTraits Dropout::traits() const {
  return {.tokens = TokenUse::each_alone,
          .refuses = {{"tp", "dropout under tensor parallelism is not built yet"}},
          .draws = true};
}

at::Tensor Dropout::forward(at::Tensor x, const Batch& batch) {
  if (p_ == 0 || !batch.draws.defined()) return x;
  return model::dropout(x, batch.draws, p_, salt_);
}

}  // namespace heddle
