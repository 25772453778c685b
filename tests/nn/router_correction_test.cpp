// Correction bias of a router, invalid expert groups, and jitter.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/nn/router.h"
#include "heddle/transport/threads.h"

namespace heddle {
namespace {

std::string correction_refused(int64_t k, int64_t groups, int64_t top_groups, int64_t best) {
  RouterConfig config;
  config.hidden = 3;
  config.experts = 8;
  config.rule.top_k = k;
  config.rule.groups = groups, config.rule.top_groups = top_groups, config.rule.group_best = best;
  try {
    const Router router(config, Init{}, at::kFloat);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(Router, RefusesGroupsThatTheExpertsDoNotAllow) {
  EXPECT_EQ(correction_refused(2, 4, 2, 2), "");
  EXPECT_EQ(correction_refused(4, 4, 2, 1), "");
  EXPECT_EQ(correction_refused(9, 1, 1, 1), "a token chooses 9 of 8 experts");
  EXPECT_EQ(correction_refused(2, 3, 1, 1), "8 experts do not divide into 3 groups");
  EXPECT_EQ(correction_refused(2, 4, 5, 1), "a token chooses 5 of 4 groups");
  EXPECT_EQ(correction_refused(5, 4, 2, 1), "a token chooses 5 experts out of 2 groups with 2 experts each");
  EXPECT_EQ(correction_refused(2, 8, 4, 2), "a group is worth its best 2 experts and has 1");
}

// Tests a table with distinct experts, and a table that lists one expert twice.
TEST(Router, TakesTheExpertsOfItsTable) {
  at::manual_seed(6);
  for (const bool twice : {false, true}) {
    RouterConfig config;
    config.hidden = 3, config.experts = 4, config.rule.top_k = 3, config.table_tokens = 5;
    config.rule.score = model::RouterRule::Score::sqrt_softplus;
    config.rule.normalise = true, config.rule.scale = 1.5;
    Router router(config, Init{Init::Kind::normal, 1.0}, at::kDouble);
    EXPECT_EQ(router.slots().back().name, "tid2eid");
    EXPECT_FALSE(router.slots().back().trainable());
    EXPECT_TRUE(at::equal(router.table, at::arange(15).remainder(4).view({5, 3})));
    if (twice) router.table.select(1, 1).copy_(router.table.select(1, 0));
    Batch batch;
    batch.tokens = at::tensor({4, 0, 2, 2}, at::kLong).view({2, 2});
    const at::Tensor x = at::randn({4, 3}, at::kDouble), d = at::randn({4, 3}, at::kDouble);
    const model::Routing routing = router.route(x, batch);
    const at::Tensor experts = router.table.index_select(0, batch.tokens.view(-1));
    EXPECT_TRUE(at::equal(routing.experts, experts));
    const at::Tensor weight = router.weight.detach().clone().set_requires_grad(true);
    const at::Tensor scores = at::softplus(at::matmul(x, weight.t())).sqrt().gather(1, experts);
    const at::Tensor want = scores / scores.sum(1, true) * 1.5;
    EXPECT_LE((routing.weights - want).abs().max().item<double>(), 1e-12);
    (routing.weights * d).sum().backward();
    (want * d).sum().backward();
    EXPECT_LE((router.weight.grad() - weight.grad()).abs().max().item<double>(), 1e-12);
  }
}

TEST(Router, MovesItsCorrectionBiasAgainstTheLoadsAndNotAfterASkippedStep) {
  RouterConfig config;
  config.hidden = 3, config.experts = 4, config.layer = 2;
  config.correction = true, config.correction_rate = 0.25;
  Router router(config, Init{}, at::kFloat);
  EXPECT_FALSE(router.correction.requires_grad());
  EXPECT_EQ(router.slots().back().name, "e_score_correction_bias");
  const auto layout = std::make_shared<SideLayout>();
  for (SideOutput* output : router.side_outputs()) layout->add(*output);
  const SideValues values{layout, at::tensor({3.0, 1.0, 2.0, 2.0}, at::kDouble)};
  // This rank holds experts 1 to 3. Other frozen slots stay unchanged.
  const FrozenPart part{"layers.2.gate.e_score_correction_bias", at::ones({3}), {1}},
      other{"layers.2.gate.weight", at::ones({3}), {1}};
  const std::vector<FrozenPart> parts = {other, part};
  ThreadWorld::run(1, [&](Rendezvous& rendezvous) {
    const DeviceMesh mesh = mesh::build(std::vector<Axis>{{"dp", 1}}, rendezvous, "");
    router.after_update({values, at::ones({1}), parts}, mesh);
    EXPECT_TRUE(at::equal(part.tensor, at::ones({3})));
    router.after_update({values, at::zeros({1}), parts}, mesh);
  });
  EXPECT_TRUE(at::equal(part.tensor, at::tensor({1.25F, 1.0F, 1.0F})));
  EXPECT_TRUE(at::equal(other.tensor, at::ones({3})));
}

TEST(Jitter, IsUniformAndAFunctionOfRowsPlacesColumnsAndLayers) {
  Batch batch;
  batch.tokens = at::arange(6 * 50).view({6, 50}).remainder(71);
  batch.tokens[5].copy_(batch.tokens[0]);
  const at::Tensor x = at::ones({300, 64}).requires_grad_();
  const at::Tensor y = model::jittered(x, 0.1, 2, batch), off = (y.detach() - 1) / 0.1;
  EXPECT_GE(off.min().item<double>(), -1.0001);
  EXPECT_LE(off.max().item<double>(), 1.0001);
  EXPECT_NEAR(off.mean().item<double>(), 0, 0.02);
  EXPECT_NEAR(off.square().mean().item<double>(), 1.0 / 3, 0.01);
  EXPECT_TRUE(at::equal(y.narrow(0, 0, 50), y.narrow(0, 250, 50)));  // equal rows of x
  const auto alike = [&](const at::Tensor& a, const at::Tensor& b) { return a.eq(b).sum().item<int64_t>(); };
  EXPECT_LT(alike(y.narrow(0, 0, 50), y.narrow(0, 50, 50)), 10);
  EXPECT_LT(alike(y.narrow(0, 0, 49), y.narrow(0, 1, 49)), 10);
  EXPECT_LT(alike(y.narrow(1, 0, 63), y.narrow(1, 1, 63)), 10);
  EXPECT_LT(alike(y, model::jittered(x, 0.1, 3, batch)), 20);
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), y.detach()));
  // The third row alone, as another batch split would pass it.
  Batch part;
  part.tokens = batch.tokens.narrow(0, 2, 1);
  EXPECT_TRUE(at::equal(model::jittered(x.narrow(0, 100, 50), 0.1, 2, part), y.narrow(0, 100, 50)));
}

}  // namespace
}  // namespace heddle
