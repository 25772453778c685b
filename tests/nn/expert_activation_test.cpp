// Activation between an expert's two products, compared with a composition of ATen operators under
// autograd.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "heddle/nn/experts.h"
#include "nn/against_aten.h"

namespace heddle::model {
namespace {

using Kind = ExpertActivation::Kind;

at::Tensor composed(const ExpertActivation& how, const at::Tensor& hidden, const at::Tensor& weights) {
  const at::Tensor column = weights.unsqueeze(1);
  if (how.kind == Kind::relu2) return at::relu(hidden).square() * column;
  const at::Tensor pairs = how.interleaved
                               ? hidden.view({hidden.size(0), hidden.size(1) / 2, 2}).transpose(1, 2)
                               : hidden.view({hidden.size(0), 2, hidden.size(1) / 2});
  const at::Tensor gate = pairs.select(1, 0), up = pairs.select(1, 1);
  if (how.kind == Kind::swiglu) return at::silu(gate) * up * column;
  if (how.kind == Kind::geglu) return at::gelu(gate) * up * column;
  if (how.kind == Kind::geglu_tanh) return at::gelu(gate, "tanh") * up * column;
  if (how.kind == Kind::situ) {
    const at::Tensor bounded = at::tanh(up / how.situ.bound) * how.situ.bound;
    return how.situ.beta * at::tanh(gate / how.situ.beta) * at::sigmoid(gate) * bounded * column;
  }
  if (how.kind == Kind::limited_swiglu)
    return at::clamp(at::silu(gate), {}, how.limit) * at::clamp(up, -how.limit, how.limit) * column;
  const at::Tensor below = at::clamp(gate, {}, how.limit), within = at::clamp(up, -how.limit, how.limit);
  return below * at::sigmoid(below * how.alpha) * (within + how.shift) * column;
}

void expect_composed(const ExpertActivation& how, int64_t rows, int64_t width, at::ScalarType dtype) {
  const at::ScalarType wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor hidden = (at::randn({rows, how.columns() * width}) * 3).to(dtype);
  const at::Tensor weights = at::rand({rows}, wide), dy = at::randn({rows, width}).to(dtype);
  const at::Tensor h = hidden.to(at::kDouble).requires_grad_(), w = weights.to(at::kDouble).requires_grad_();
  const at::Tensor want = composed(how, h, w);
  want.backward(dy.to(at::kDouble));
  const double close = tests::tolerance_of(dtype);
  const ActivationGradients got = activate_backward(how, dy, hidden, weights);
  const auto expect = [&](const at::Tensor& ours, const at::Tensor& theirs, const char* what) {
    if (theirs.numel() > 0) tests::expect_close(ours, theirs.detach().to(ours.scalar_type()), close, what);
  };
  expect(activate(how, hidden, weights), want, "output");
  expect(got.y, want, "output, computed again");
  expect(got.hidden, h.grad(), "gradient of what comes in");
  expect(got.weights, w.grad(), "gradient of the weights");
}

// Widths below, at and above the vector width.
TEST(ExpertActivation, EqualsItsFormulaInEveryDtype) {
  at::manual_seed(21);
  for (const Kind kind : {Kind::swiglu, Kind::limited_swiglu, Kind::clamped_swiglu, Kind::geglu,
                          Kind::geglu_tanh, Kind::relu2, Kind::situ})
    for (const bool interleaved : {false, true})
      for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16})
        for (const int64_t width : {1, 15, 16, 37, 300})
          for (const int64_t rows : {0, 1, 7}) {
            SCOPED_TRACE(std::to_string(static_cast<int>(kind)) + " " + std::to_string(width));
            expect_composed({kind, 1.702, 2.5, interleaved, {1.5, 2.5}}, rows, width, dtype);
          }
}

TEST(ExpertActivation, ClampsBeforeASiluWithoutAShift) {
  at::manual_seed(22);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const int64_t width : {15, 16, 37})
      expect_composed({Kind::clamped_swiglu, 1, 1.5, false, {}, 0}, 7, width, dtype);
}

TEST(ExpertActivation, StaysFiniteForLargeGatesAndKeepsWhatIsNotANumber) {
  const at::Tensor hidden = at::tensor({-200.0F, 200.0F, NAN, 1.0F, 1.0F, 1.0F}).view({1, 6});
  const at::Tensor ones = at::ones({1}), dy = at::ones({1, 3});
  const at::Tensor y = activate({}, hidden, ones)[0];
  EXPECT_NEAR(y[0].item<float>(), 0.0F, 1e-30F);
  EXPECT_EQ(y[1].item<float>(), 200.0F);
  EXPECT_TRUE(std::isnan(y[2].item<float>()));
  const at::Tensor d = activate_backward({}, dy, hidden, ones).hidden[0];
  EXPECT_EQ(d[1].item<float>(), 1.0F);
  EXPECT_TRUE(std::isnan(d[2].item<float>()));
}

// The gradient of the linear half is silu(2) for 1, NaN and 9, and 0 for 9 with a limit of 7.
TEST(ExpertActivation, PassesTheGradientOfASecondHalfThatIsNotANumber) {
  const at::Tensor hidden = at::tensor({2.0F, 2.0F, 2.0F, 1.0F, NAN, 9.0F}).view({1, 6});
  const at::Tensor dy = at::ones({1, 3}), ones = at::ones({1});
  const float gated = at::silu(at::full({1}, 2.0F)).item<float>();
  const at::Tensor d = activate_backward({}, dy, hidden, ones).hidden[0];
  for (int64_t i = 3; i < 6; ++i) EXPECT_NEAR(d[i].item<float>(), gated, 1e-6F) << i;
  EXPECT_TRUE(std::isnan(d[1].item<float>()));
  const ExpertActivation clamped{Kind::clamped_swiglu, 1.0, 7.0};
  const at::Tensor bounded = activate_backward(clamped, dy, hidden, ones).hidden[0];
  EXPECT_NEAR(bounded[3].item<float>(), gated, 1e-6F);
  EXPECT_NEAR(bounded[4].item<float>(), gated, 1e-6F);
  EXPECT_EQ(bounded[5].item<float>(), 0.0F);
}

// Below the smallest normal e^x the sigmoid of a gate is 0. Infinite gates give ATen's result.
TEST(ExpertActivation, IsExactForTinyAndInfiniteGates) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const double most = dtype == at::kDouble ? 707 : 86, beyond = dtype == at::kDouble ? 1e300 : 1e38;
    for (const bool interleaved : {false, true}) {
      const at::Tensor gates =
          at::tensor({-50.0, -86.0, -88.5, -100.0, -most, -beyond, INFINITY, -INFINITY}, at::kDouble);
      const at::Tensor both = at::stack({gates, at::full_like(gates, 3.0)}, interleaved ? 1 : 0);
      const at::Tensor hidden = both.reshape({1, -1}).to(dtype), weights = at::ones({1}, dtype);
      const ExpertActivation how{ExpertActivation::Kind::swiglu, 1, 0, interleaved};
      const at::Tensor want = at::silu(gates) * 3, got = activate(how, hidden, weights)[0].to(at::kDouble);
      const double close = dtype == at::kDouble ? 1e-12 : 1e-5, tiny = dtype == at::kDouble ? 1e-300 : 1e-35;
      EXPECT_TRUE(at::allclose(got, want, close, tiny, /*equal_nan=*/true)) << got << want;
      const at::Tensor d = activate_backward(how, at::ones({1, 8}, dtype), hidden, weights).hidden.view(-1);
      for (int64_t i = 0; i < 6; ++i) {
        const double x = gates[i].item<double>(), share = 1 / (1 + std::exp(-x));
        const double slope = share == 0 ? 0 : 3 * share * (1 + x * (1 - share));
        EXPECT_NEAR(d[interleaved ? 2 * i : i].item<double>(), slope, std::abs(slope) * close + tiny) << x;
      }
    }
  }
}

}  // namespace
}  // namespace heddle::model
