// Queries, keys and values of latent attention: inputs that stay unchanged, and gradients through one of
// them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lib/decoder/latent/latent_heads.h"

namespace heddle::tests {
namespace {

using decoder::LatentShape;

constexpr int64_t kTokens = 7;

LatentShape shape_of(bool interleaved) {
  return {3, 5, 4, 7, interleaved};
}

model::RotaryAngles some_angles() {
  const at::Tensor turns = at::arange(kTokens * 2, at::kFloat).view({kTokens, 2}) * 0.37;
  return {turns.cos(), turns.sin()};
}

TEST(LatentHeads, DoNotModifyASharedQuery) {
  const at::Tensor q = at::randn({kTokens, 27}), held = q.clone();
  decoder::assemble_heads(q, at::randn({kTokens, 36}), at::randn({kTokens, 4}), some_angles(),
                          shape_of(true));
  EXPECT_TRUE(at::equal(q, held));
}

TEST(LatentHeads, HaveGradientsIfOnlyOneIsUsed) {
  const at::Tensor q = at::randn({kTokens, 27}).requires_grad_(),
                   both = at::randn({kTokens, 36}).requires_grad_(),
                   key = at::randn({kTokens, 4}).requires_grad_();
  decoder::assemble_heads(q, both, key, some_angles(), shape_of(true)).v.sum().backward();
  EXPECT_EQ(both.grad().sum().item<float>(), kTokens * 3 * 7);
  EXPECT_EQ(key.grad().abs().sum().item<float>(), 0);
}

}  // namespace
}  // namespace heddle::tests
