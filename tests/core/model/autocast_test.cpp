// Layers under autocast have the dtypes and results of ATen's operators under ATen's autocast.
#include "heddle/model/autocast.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "core/model/aten_autocast.h"  // clashes with <ATen/autocast_mode.h> if types differ
#include "core/parallel/recompute_units.h"
#include "heddle/nn/attention_core.h"
#include "heddle/nn/rms_norm.h"
#include "heddle/nn/token_loss.h"
#include "heddle/nn/weight_gradients.h"

namespace heddle {
namespace {

using model::Autocast;
using tests::expect_equal;
using tests::loss_of;
using tests::small_model;
using tests::tokens;
using Gradients = std::vector<at::Tensor>;

at::Tensor numbers(at::IntArrayRef shape, double start, double size = 0.5) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return (at::arange(count, at::kFloat) * 0.7 + start).sin().mul_(size).view(shape).set_requires_grad(true);
}

struct Outputs {
  at::Tensor y;
  Gradients gradients;
};

Outputs of(const at::Tensor& y, const Gradients& leaves) {
  (y * numbers(y.sizes(), 3).detach()).sum().backward();
  Outputs out{y, {}};
  for (const at::Tensor& leaf : leaves) {
    out.gradients.push_back(leaf.grad());
    leaf.mutable_grad().reset();
  }
  return out;
}

// `aten` runs under ATen's autocast. Gradients may be rounded at other places, by a few of bfloat16's last
// bits.
void expect_like_aten(const Gradients& leaves, const std::function<at::Tensor()>& ours,
                      const std::function<at::Tensor()>& aten) {
  Autocast autocast(at::kBFloat16, Autocast::Weights::kept);
  at::Tensor got_y, want_y;
  {
    const Autocast::Scope scope(&autocast);
    got_y = ours();
  }
  at::autocast::set_autocast_enabled(at::kCPU, true);
  want_y = aten();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  const Outputs got = of(got_y, leaves), want = of(want_y, leaves);
  EXPECT_EQ(got.y.scalar_type(), want.y.scalar_type());
  EXPECT_TRUE(at::allclose(got.y, want.y, 1e-2, 1e-3));
  for (size_t i = 0; i < leaves.size(); ++i) {
    ASSERT_TRUE(got.gradients[i].defined()) << i;
    EXPECT_EQ(got.gradients[i].scalar_type(), leaves[i].scalar_type()) << i;
    const double size = want.gradients[i].abs().max().item<double>();
    EXPECT_LE((got.gradients[i] - want.gradients[i]).abs().max().item<double>(), 1.2e-2 * size) << i;
  }
}

TEST(Autocast, ComputesProductsInTheLowerDtype) {
  const at::Tensor x = numbers({6, 8}, 0), w = numbers({10, 8}, 1), b = numbers({10}, 2);
  expect_like_aten(
      {x, w, b}, [&] { return model::linear(x, w, b); }, [&] { return at::linear(x, w, b); });
}

TEST(Autocast, AddsAProductToAResidualInTheResidualsDtype) {
  const at::Tensor x = numbers({6, 8}, 0), w = numbers({8, 8}, 1), r = numbers({6, 8}, 4);
  expect_like_aten(
      {x, w, r}, [&] { return model::linear_onto(r, x, w, {}); }, [&] { return r + at::linear(x, w); });
}

TEST(Autocast, AttendsInTheLowerDtype) {
  const at::Tensor q = numbers({6, 8}, 0), k = numbers({6, 4}, 1), v = numbers({6, 4}, 2);
  const auto heads = [](const at::Tensor& x) { return x.view({2, 3, -1, 4}).transpose(1, 2); };
  expect_like_aten(
      {q, k, v},
      [&] {
        return model::attend(q, k, v, {2, 3, 4});
      },
      [&] {
        return at::scaled_dot_product_attention(heads(q), heads(k), heads(v), {}, 0.0, true, {}, true)
            .transpose(1, 2)
            .reshape({6, 8});
      });
}

TEST(Autocast, ComputesNormsAndLossesInFp32) {
  const at::Tensor x = numbers({6, 8}, 0), w = numbers({8}, 1), head = numbers({11, 8}, 5);
  const at::Tensor labels = at::arange(6);
  expect_like_aten(
      {x, w}, [&] { return model::rms_norm(x, w, 1e-6); },
      [&] { return w * (x * (x.pow(2).mean(-1, true) + 1e-6).rsqrt()); });
  expect_like_aten(
      {x, head}, [&] { return model::linear_token_loss(x, head, labels); },
      [&] {
        return at::cross_entropy_loss(at::linear(x, head).to(at::kFloat), labels, {}, at::Reduction::Sum)
            .view({1});
      });
}

TEST(Autocast, DoesNotAffectDoublesAndCodeOutsideOfTheScope) {
  const at::Tensor x = numbers({2, 8}, 0), w = numbers({3, 8}, 1);
  Autocast autocast(at::kBFloat16, Autocast::Weights::kept);
  {
    const Autocast::Scope scope(&autocast);
    EXPECT_EQ(model::linear(x.to(at::kDouble), w.to(at::kDouble), {}).scalar_type(), at::kDouble);
    EXPECT_EQ(model::linear(x, w, {}).scalar_type(), at::kBFloat16);
    EXPECT_EQ(at::linear(x, w).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(model::linear(x, w, {}).scalar_type(), at::kFloat);
  EXPECT_EQ(at::linear(x, w).scalar_type(), at::kFloat);
}

TEST(Autocast, CastsAWeightOnceUntilParametersChange) {
  const at::Tensor w = numbers({3, 8}, 1);
  Autocast kept(at::kBFloat16, Autocast::Weights::kept),
      fresh(at::kBFloat16, Autocast::Weights::cast_each_time);
  const at::Tensor first = kept.weight(w);
  EXPECT_TRUE(kept.weight(w).is_same(first));
  EXPECT_FALSE(fresh.weight(w).is_same(fresh.weight(w)));
  kept.parameters_changed();
  EXPECT_FALSE(kept.weight(w).is_same(first));
}

// Returns the gradients of a model under autocast.
Gradients gradients_under(ActivationCheckpointing mode, bool split) {
  Units units = tests::built_model(small_model(), mode);
  Autocast autocast(at::kBFloat16, Autocast::Weights::kept);
  WeightGradients queue;
  Batch batch = tokens();
  if (split) batch.weight_gradients = &queue;
  at::Tensor loss;
  {
    const Autocast::Scope scope(&autocast);
    loss = loss_of(units, batch);
  }
  if (split) queue.defer();
  loss.backward();
  if (split) queue.drain();
  return tests::gradients_of(units);
}

TEST(Autocast, GivesTheSameBitsWithRecomputationAndSplitBackwards) {
  const Gradients want = gradients_under(ActivationCheckpointing::none, false);
  for (const auto mode :
       {ActivationCheckpointing::none, ActivationCheckpointing::full, ActivationCheckpointing::selective})
    for (const bool split : {false, true}) expect_equal(gradients_under(mode, split), want);
}

}  // namespace
}  // namespace heddle
