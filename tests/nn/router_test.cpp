// Routing decisions and load-balancing losses.
#include "heddle/nn/router.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "heddle/mesh/device_mesh.h"
#include "heddle/transport/threads.h"
#include "nn/against_aten.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using model::BalanceLoss;
using model::RouterRule;
using Score = RouterRule::Score;
using tests::expect_close;

RouterRule rule(Score score, int64_t k, bool normalise = false, double scale = 1) {
  RouterRule out;
  out.score = score;
  out.top_k = k;
  out.normalise = normalise;
  out.scale = scale;
  return out;
}

at::Tensor plain_scores(const at::Tensor& logits, Score score) {
  if (score == Score::sigmoid) return 1 / (1 + at::exp(-logits));
  if (score == Score::sqrt_softplus) return at::log(1 + at::exp(logits)).sqrt();
  const at::Tensor e = at::exp(logits);
  return e / e.sum(1, true);
}

TEST(Router, TakesTheFirstOfEqualExperts) {
  const model::Scored scored = model::score_experts(at::zeros({2, 5}), {}, rule(Score::softmax, 3));
  EXPECT_TRUE(at::equal(scored.experts, at::tensor({0, 1, 2, 0, 1, 2}, at::kLong).view({2, 3})));
}

TEST(Router, UsesTheBiasForTheChoiceAlone) {
  const at::Tensor logits = at::tensor({0.0, 1.0, 2.0, 3.0}, at::kDouble).view({1, 4});
  const at::Tensor bias = at::tensor({1.0, 0.0, 0.0, 0.0}, at::kDouble);
  const model::Scored scored = model::score_experts(logits, bias, rule(Score::sigmoid, 2));
  EXPECT_TRUE(at::equal(scored.experts, at::tensor({0, 3}, at::kLong).view({1, 2})));  // scores 1.5 and 0.953
  EXPECT_NEAR(scored.weights[0][0].item<double>(), 0.5, 1e-12);
  EXPECT_NEAR(scored.weights[0][1].item<double>(), 1 / (1 + std::exp(-3.0)), 1e-12);
}

TEST(Router, ChoosesWithinTheBestGroups) {
  // Groups {0, 1}, {2, 3}, {4, 5}. The best expert is in the second group, the best pair in the third.
  const at::Tensor logits = at::tensor({0.1, 0.2, 2.0, -5.0, 1.5, 1.4}, at::kDouble).view({1, 6});
  RouterRule how = rule(Score::sigmoid, 2);
  how.groups = 3;
  how.top_groups = 1;
  how.group_best = 2;
  EXPECT_TRUE(
      at::equal(model::score_experts(logits, {}, how).experts, at::tensor({4, 5}, at::kLong).view({1, 2})));
  how.group_best = 1;
  EXPECT_TRUE(
      at::equal(model::score_experts(logits, {}, how).experts, at::tensor({2, 3}, at::kLong).view({1, 2})));
  how.top_groups = 2;
  EXPECT_TRUE(
      at::equal(model::score_experts(logits, {}, how).experts, at::tensor({2, 4}, at::kLong).view({1, 2})));
}

TEST(Router, TakesExpertsInTurnInABenchmark) {
  const model::Scored scored =
      model::score_in_turn(at::zeros({3, 4}), at::arange(3), rule(Score::softmax, 2));
  EXPECT_TRUE(at::equal(scored.experts, at::tensor({0, 1, 2, 3, 0, 1}, at::kLong).view({3, 2})));
  EXPECT_TRUE(at::equal(scored.weights, at::full({3, 2}, 0.5)));
}

TEST(Router, CountsChoices) {
  const at::Tensor chosen = at::tensor({0, 2, 2, -1, 1, 2, 0, 0}, at::kLong).view({4, 2});
  EXPECT_TRUE(at::equal(model::count_choices(chosen, 1, 3), at::tensor({3.F, 1.F, 3.F}).view({1, 3})));
  EXPECT_TRUE(
      at::equal(model::count_choices(chosen, 2, 3), at::tensor({1.F, 0.F, 2.F, 2.F, 1.F, 1.F}).view({2, 3})));
}

// A router of 4 experts on tokens of width 3, and its losses.
struct Routed {
  explicit Routed(BalanceLoss::Form form, Score score = Score::softmax, int64_t k = 2, double z = 0) {
    RouterConfig config;
    config.hidden = 3;
    config.experts = 4;
    config.rule = rule(score, k);
    config.balance = {form, 0.1};
    config.z_loss = z;
    if (form == BalanceLoss::Form::model) config.layers = std::make_shared<model::LayerBalance>(1, 0.1);
    router = std::make_unique<Router>(config, Init{Init::Kind::normal, 1.0}, at::kDouble);
    for (SideOutput* output : router->side_outputs()) layout->add(*output);
    sides = std::make_unique<SideOutputs>(layout, at::kCPU);
    sides->begin([](LossDivisor) { return 1.0; });
  }
  // Returns the gradient of the router's weight from the balancing losses only, without the routing weights.
  at::Tensor gradient(const at::Tensor& x, int64_t rows) {
    Batch batch;
    batch.tokens = at::zeros({rows, x.size(0) / rows}, at::kLong);
    batch.side_outputs = sides.get();
    routing = router->route(x, batch);
    (routing.weights * 0).sum().backward();
    return router->weight.grad();
  }
  double value(const std::string& name) {
    for (const SideLayout::Entry& entry : layout->entries())
      if (entry.spec.name == name) return sides->sums()[entry.begin].item<double>();
    return -1;
  }
  std::shared_ptr<SideLayout> layout = std::make_shared<SideLayout>();
  std::unique_ptr<Router> router;
  std::unique_ptr<SideOutputs> sides;
  model::Routing routing;
};

// Reference: the mean over rows of 0.1 * E / (k T) sum_e n_e p_e.
at::Tensor plain_balance(const at::Tensor& x, const at::Tensor& weight, const Routed& of, int64_t rows) {
  const int64_t k = of.routing.experts.size(1), tokens = x.size(0) / rows;
  const at::Tensor scores = plain_scores(at::linear(x, weight), of.router->config().rule.score);
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t e = 0; e < 4; ++e) {
      const double n = of.routing.experts.narrow(0, row * tokens, tokens).eq(e).sum().item<double>();
      loss = loss +
             0.1 * 4 * n / (k * tokens) * scores.narrow(0, row * tokens, tokens).select(1, e).mean() / rows;
    }
  return loss;
}

TEST(Router, BalancesByTheFormulaOfALayerAndOfASequence) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({10, 3}, at::kDouble);
  for (const Score score : {Score::softmax, Score::sigmoid})
    for (const bool sequence : {false, true}) {
      Routed one(sequence ? BalanceLoss::Form::sequence : BalanceLoss::Form::layer, score);
      const at::Tensor got = one.gradient(x, 2);
      const at::Tensor weight = one.router->weight.detach().clone().set_requires_grad(true);
      const at::Tensor loss = plain_balance(x, weight, one, sequence ? 2 : 1);
      loss.backward();
      EXPECT_NEAR(one.value("router/aux_loss"), loss.item<double>(), 1e-6);
      expect_close(got, weight.grad(), 1e-6, "gradient");
    }
}

// The second microbatch of a step uses the token shares of both. A new step resets the shares.
TEST(Router, BalancesOverTheMicrobatchesOfAStep) {
  at::manual_seed(14);
  const at::Tensor first = at::randn({10, 3}, at::kDouble), second = at::randn({4, 3}, at::kDouble);
  Routed one(BalanceLoss::Form::global);
  const auto counts = [&] { return model::count_choices(one.routing.experts, 1, 4).to(at::kDouble).view(4); };
  const auto wanted = [&](const at::Tensor& x, const at::Tensor& shares) {
    const at::Tensor weight = one.router->weight.detach().clone().set_requires_grad(true);
    (0.1 * 4 / 2 * shares * plain_scores(at::linear(x, weight), Score::softmax).mean(0)).sum().backward();
    return weight.grad();
  };
  const auto gradient = [&](const at::Tensor& x) {
    one.router->weight.mutable_grad() = at::Tensor();
    return one.gradient(x, 1);
  };
  at::Tensor got = gradient(first);
  expect_close(got, wanted(first, counts() / 10), 1e-6, "first");
  const at::Tensor before = counts();
  got = gradient(second);
  expect_close(got, wanted(second, (before + counts()) / 14), 1e-6, "second");
  EXPECT_TRUE(one.router->wants_updates());
  ThreadWorld::run(1, [&](Rendezvous& rendezvous) {
    const at::Tensor skipped = at::zeros({1});
    one.router->after_update({SideValues{}, skipped, {}},
                             mesh::build(std::vector<Axis>{{"dp", 1}}, rendezvous, ""));
  });
  got = gradient(second);
  expect_close(got, wanted(second, counts() / 4), 1e-6, "next step");
}

TEST(Router, HasLossOneForEqualLoadAndTheNumberOfExpertsForOne) {
  Routed even(BalanceLoss::Form::layer, Score::softmax, 4), one(BalanceLoss::Form::layer, Score::softmax, 1);
  const at::NoGradGuard no_gradients;
  even.router->weight.zero_();
  one.router->weight.zero_();
  one.router->weight[2].fill_(100);
  Batch batch;
  batch.tokens = at::zeros({1, 5}, at::kLong);
  for (Routed* each : {&even, &one}) {
    batch.side_outputs = each->sides.get();
    each->router->route(at::ones({5, 3}, at::kDouble), batch);
  }
  EXPECT_NEAR(even.value("router/aux_loss"), 0.1 * 1, 1e-6);
  EXPECT_NEAR(one.value("router/aux_loss"), 0.1 * 4, 1e-6);
}

TEST(Router, HasTheZLoss) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({10, 3}, at::kDouble);
  Routed one(BalanceLoss::Form::none, Score::softmax, 2, 0.01);
  const at::Tensor got = one.gradient(x, 1);
  const at::Tensor weight = one.router->weight.detach().clone().set_requires_grad(true);
  const at::Tensor loss = 0.01 * at::logsumexp(at::linear(x, weight), 1).square().mean();
  loss.backward();
  EXPECT_NEAR(one.value("router/z_loss"), loss.item<double>(), 1e-9);
  expect_close(got, weight.grad(), 1e-9, "gradient");
}

// Two ranks hold five tokens of each row. The hook gives each rank the token counts of both.
TEST(Router, GivesAPartOfTheLossForAPartOfTheTokens) {
  at::manual_seed(6);
  const at::Tensor x = at::randn({10, 3}, at::kDouble);
  for (const auto form : {BalanceLoss::Form::layer, BalanceLoss::Form::model}) {
    Routed whole(form), part(form);
    const at::Tensor want = whole.gradient(x, 1);
    part.router->weight.detach().copy_(whole.router->weight.detach());
    const at::Tensor counts =
        at::cat({model::count_choices(whole.routing.experts, 1, 4), at::full({1, 1}, 10.F)}, 1);
    part.router->total.add(Router::Total::in_place("test", [&](const at::Tensor&) { return counts; }));
    part.gradient(x.narrow(0, 0, 5), 1);
    const at::Tensor got = part.gradient(x.narrow(0, 5, 5), 1);
    expect_close(got, want, 1e-6, "gradient");
    EXPECT_NEAR(part.value("router/aux_loss"), whole.value("router/aux_loss"), 1e-9);
  }
}

TEST(Router, ComputesInFp32WhereTheModelDoesNot) {
  at::manual_seed(7);
  RouterConfig config;
  config.hidden = 64;
  config.experts = 8;
  config.rule.top_k = 8;
  config.in_fp32 = true;
  Router router(config, Init{Init::Kind::normal, 1.0}, at::kBFloat16);
  const at::Tensor x = at::randn({32, 64}).to(at::kBFloat16);
  const at::Tensor logits = at::linear(x.to(at::kFloat), router.weight.detach().to(at::kFloat));
  const at::Tensor want = std::get<0>(at::topk(at::softmax(logits, 1), 8, 1));
  EXPECT_TRUE(at::allclose(router.route(x, {}).weights, want, 1e-5, 1e-6));
}

TEST(Router, RefusesATopKLargerThanTheExperts) {
  RouterConfig config;
  config.hidden = 3;
  config.experts = 4;
  config.rule.top_k = 5;
  EXPECT_THAT(tests::thrown_by([&] { const Router router(config, {}, at::kFloat); }),
              ::testing::HasSubstr("a token chooses 5 of 4 experts"));
}

TEST(LayerBalance, RefusesALayerThatIsMissing) {
  model::LayerBalance balance(3, 0.1);
  const at::Tensor counts = at::ones({4}), tokens = at::ones({1}), scores = at::rand({5, 4});
  EXPECT_FALSE(balance.add(0, counts, tokens, scores).defined());
  EXPECT_THAT(tests::thrown_by([&] { balance.add(2, counts, tokens, scores); }),
              ::testing::HasSubstr("layer 2 of the mixture follows layer 0 on this rank"));
}

}  // namespace
}  // namespace heddle
