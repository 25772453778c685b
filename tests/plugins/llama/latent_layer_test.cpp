// Queries, keys and values of latent attention equal a plain composition of operators, with every gradient.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lib/decoder/latent/latent_heads.h"
#include "nn/against_aten.h"

namespace heddle::tests {
namespace {

using decoder::LatentShape;
using Given = std::vector<at::Tensor>;

constexpr int64_t kTokens = 7, kRank = 6;

LatentShape shape_of(bool interleaved) {
  return {3, 5, 4, 7, interleaved};
}

model::RotaryAngles some_angles() {
  const at::Tensor turns = at::arange(kTokens * 2, at::kFloat).view({kTokens, 2}) * 0.37;
  return {turns.cos(), turns.sin()};
}

// x [tokens, heads, 4]: pair i is elements 2 i and 2 i + 1, or i and i + 2.
at::Tensor plainly_turned(const at::Tensor& x, bool interleaved) {
  const model::RotaryAngles angles = some_angles();
  const at::Tensor cos = angles.cos.to(x.scalar_type()).unsqueeze(1),
                   sin = angles.sin.to(x.scalar_type()).unsqueeze(1);
  const auto pick = [&](int64_t i, int64_t which) {
    return x.select(2, interleaved ? 2 * i + which : i + 2 * which);
  };
  Given out(4);
  for (const int64_t i : {0, 1}) {
    const at::Tensor c = cos.select(2, i), s = sin.select(2, i), a = pick(i, 0), b = pick(i, 1);
    out[interleaved ? 2 * i : i] = a * c - b * s;
    out[interleaved ? 2 * i + 1 : i + 2] = b * c + a * s;
  }
  return at::stack(out, 2);
}

at::Tensor plain_heads(const Given& in, bool interleaved) {
  const at::Tensor q = in[0].view({kTokens, 3, 9}), both = in[1].view({kTokens, 3, 12}), last = in[2];
  const at::Tensor turned_q = at::cat({q.narrow(2, 0, 5), plainly_turned(q.narrow(2, 5, 4), interleaved)}, 2);
  const at::Tensor key = plainly_turned(last.narrow(1, kRank, 4).unsqueeze(1), interleaved);
  const at::Tensor k = at::cat({both.narrow(2, 0, 5), key.expand({kTokens, 3, 4})}, 2);
  return at::cat(
      {turned_q.flatten(1), k.flatten(1), both.narrow(2, 5, 7).flatten(1), last.narrow(1, 0, kRank)}, 1);
}

// `gaps`: the tensors' columns are not side by side, which the CPU's kernel does not take.
at::Tensor own_heads(const Given& in, bool interleaved, bool gaps) {
  const auto laid = [&](const at::Tensor& x) { return gaps ? x.t().contiguous().t() : x * 1; };
  auto [latent, key] = decoder::split_latent(in[2] * 1, 4);
  const decoder::LatentHeads all =
      decoder::assemble_heads(laid(in[0]), laid(in[1]), key, some_angles(), shape_of(interleaved));
  return at::cat({all.q, all.k, all.v, latent}, 1);
}

TEST(LatentHeads, EqualPlainOperatorsWithTheirGradients) {
  at::manual_seed(7);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat})
    for (const bool interleaved : {true, false})
      for (const bool gaps : {true, false}) {
        SCOPED_TRACE(std::to_string(interleaved) + std::to_string(gaps));
        const Given in = {at::randn({kTokens, 27}, dtype), at::randn({kTokens, 36}, dtype),
                          at::randn({kTokens, kRank + 4}, dtype)};
        expect_same([&](const Given& x) { return own_heads(x, interleaved, gaps); },
                    [&](const Given& x) { return plain_heads(x, interleaved); }, in,
                    dtype == at::kDouble ? 1e-12 : 3e-6);
      }
}

TEST(LatentHeads, LeaveAQueryThatOthersHoldAsItIs) {
  const at::Tensor q = at::randn({kTokens, 27}), held = q.clone();
  decoder::assemble_heads(q, at::randn({kTokens, 36}), at::randn({kTokens, 4}), some_angles(),
                          shape_of(true));
  EXPECT_TRUE(at::equal(q, held));
}

TEST(LatentHeads, HaveGradientsWhereOnlyOneOfThemIsUsed) {
  const at::Tensor q = at::randn({kTokens, 27}).requires_grad_(),
                   both = at::randn({kTokens, 36}).requires_grad_(),
                   key = at::randn({kTokens, 4}).requires_grad_();
  decoder::assemble_heads(q, both, key, some_angles(), shape_of(true)).v.sum().backward();
  EXPECT_EQ(both.grad().sum().item<float>(), kTokens * 3 * 7);
  EXPECT_EQ(key.grad().abs().sum().item<float>(), 0);
}

}  // namespace
}  // namespace heddle::tests
