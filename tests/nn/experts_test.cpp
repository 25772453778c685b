// Experts without tokens, split backward, autocast, and dispatch hooks of experts and their layer.
#include "heddle/nn/experts.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include "heddle/base/error.h"
#include "heddle/model/autocast.h"
#include "heddle/nn/weight_gradients.h"
#include "nn/against_aten.h"
#include "thrown.h"

namespace heddle {
namespace {

using Inputs = std::vector<at::Tensor>;

// in: x, weights, gate_up, down and optionally their biases.
model::ExpertParameters parameters_of(const Inputs& in) {
  if (in.size() == 4) return {in[2], in[3]};
  return {in[2], in[3], in[4], in[5]};
}

Inputs inputs_of(int64_t tokens, int64_t k, int64_t experts, int64_t width, int64_t columns,
                 at::ScalarType dtype) {
  const auto random = [&](at::IntArrayRef shape) { return at::randn(shape, at::kDouble).to(dtype); };
  return {random({tokens, 6}), random({tokens, k}), random({experts, columns * width, 6}),
          random({experts, 6, width})};
}

Inputs with_biases(Inputs in) {
  for (const size_t i : {2u, 3u})
    in.push_back(at::randn({in[i].size(0), in[i].size(1)}, at::kDouble).to(in[i].scalar_type()));
  return in;
}

// Returns k distinct experts per token.
at::Tensor choose(int64_t tokens, int64_t k, int64_t experts) {
  return std::get<1>(at::topk(at::rand({tokens, experts}), k, 1));
}

TEST(Experts, GetAllTokensOrNoneWhenThereIsOne) {
  at::manual_seed(7);
  const Inputs in = inputs_of(9, 1, 4, 5, 2, at::kFloat);
  for (const at::Tensor& each : in) each.set_requires_grad(true);
  model::experts(in[0], {at::full({9, 1}, 2, at::kLong), in[1]}, parameters_of(in), {}).sum().backward();
  EXPECT_EQ(in[2].grad()[0].abs().sum().item<float>(), 0.0F);  // the gradient is zeros, not undefined
  EXPECT_GT(in[2].grad()[2].abs().sum().item<float>(), 0.0F);
}

TEST(Experts, HaveZeroGradientsWithoutTokens) {
  Inputs in = with_biases(inputs_of(0, 2, 3, 5, 2, at::kFloat));
  for (at::Tensor& each : in) each.set_requires_grad(true);
  const at::Tensor y = model::experts(in[0], {at::empty({0, 2}, at::kLong), in[1]}, parameters_of(in), {});
  EXPECT_EQ(y.sizes(), in[0].sizes());
  y.sum().backward();
  for (const size_t i : {2u, 3u, 4u, 5u}) EXPECT_TRUE(at::equal(in[i].grad(), at::zeros_like(in[i]))) << i;
}

TEST(Experts, RefuseAnExpertThatIsNotThere) {
  const at::Tensor chosen = at::full({2, 1}, 4, at::kLong);
  EXPECT_THAT(tests::thrown_by([&] { model::sort_by_expert(chosen, 4); }),
              ::testing::HasSubstr("expert 4 was chosen, and there are 4"));
}

TEST(Experts, AreSortedStably) {
  const at::Tensor chosen = at::tensor({2, 0, 0, 2, -1, 0}, at::kLong).view({3, 2});
  const model::ExpertRows rows = model::sort_by_expert(chosen, 3);
  EXPECT_EQ(rows.begins, (std::vector<int64_t>{0, 3, 3, 5}));
  EXPECT_TRUE(at::equal(rows.slots, at::tensor({1, 2, 5, 0, 3}, at::kLong)));
  EXPECT_TRUE(at::equal(rows.tokens, at::tensor({0, 1, 2, 0, 1}, at::kLong)));
  EXPECT_TRUE(at::equal(rows.rows, at::tensor({3, 0, 1, 4, -1, 2}, at::kLong)));
}

TEST(Experts, AreOneNodeThatASplitBackwardSplits) {
  at::manual_seed(9);
  const at::Tensor chosen = choose(12, 2, 5);
  Inputs whole = with_biases(inputs_of(12, 2, 5, 7, 2, at::kFloat)), split;
  for (at::Tensor& each : whole)
    split.push_back(each.clone().set_requires_grad(true)), each.set_requires_grad(true);
  model::experts(whole[0], {chosen, whole[1]}, parameters_of(whole), {}).square().sum().backward();
  WeightGradients queue;
  const at::Tensor y = model::experts(split[0], {chosen, split[1]}, parameters_of(split), {}, &queue);
  EXPECT_EQ(y.grad_fn()->name(), "ExpertsBackward");
  queue.defer();
  y.square().sum().backward();
  for (size_t i = 2; i < 6; ++i) EXPECT_FALSE(split[i].grad().defined());
  queue.drain();
  for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(at::equal(split[i].grad(), whole[i].grad())) << i;
}

TEST(Experts, ComputeInAutocastsDtypeAndGiveBackWhatCameIn) {
  at::manual_seed(10);
  const at::Tensor chosen = choose(16, 2, 4);
  Inputs in = with_biases(inputs_of(16, 2, 4, 8, 2, at::kFloat)), low;
  for (at::Tensor& each : in)
    low.push_back(each.clone().set_requires_grad(true)), each.set_requires_grad(true);
  model::experts(in[0], {chosen, in[1]}, parameters_of(in), {}).square().sum().backward();
  model::Autocast autocast(at::kBFloat16, model::Autocast::Weights::kept);
  at::Tensor y;
  {
    const model::Autocast::Scope scope(&autocast);
    y = model::experts(low[0], {chosen, low[1]}, parameters_of(low), {});
  }
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  y.square().sum().backward();
  for (size_t i = 0; i < 6; ++i) tests::expect_close(low[i].grad(), in[i].grad(), 3e-2, std::to_string(i));
}

struct Layer {
  Layer() : moe(router(), {5, 6, 7}, {"gate_up", "down"}, {}, at::kFloat) {}
  static RouterConfig router() {
    RouterConfig out;
    out.hidden = 6;
    out.experts = 5;
    out.rule.top_k = 2;
    return out;
  }
  MoeLayer moe;
};

// Simulates a dispatcher of two ranks with experts 0 to 2 and 3 to 4. The sum of both parts is the whole.
TEST(Experts, AddUpOverRanksBehindTheSeam) {
  at::manual_seed(11);
  Layer layer;
  const at::Tensor x = at::randn({9, 6}), want = layer.moe.call(x, {});
  const at::Tensor gate_up = layer.moe.experts().gate_up, down = layer.moe.experts().down;
  at::Tensor sum = at::zeros_like(want);
  int64_t first = 0;
  layer.moe.experts().instead.add(Experts::Instead::around(
      "test", 0,
      [&](const at::Tensor& tokens, const model::Routing& routing, Experts& experts, const Batch& batch,
          model::Meanwhile& meanwhile, const Experts::Instead::Next& next) {
        const at::Tensor local = routing.experts - first;
        const at::Tensor outside = local.lt(0).logical_or(local.ge(experts.held()));
        return next(tokens, {local.masked_fill(outside, -1), routing.weights}, experts, batch, meanwhile);
      }));
  for (const int64_t count : {3, 2}) {
    layer.moe.experts().gate_up = gate_up.narrow(0, first, count);
    layer.moe.experts().down = down.narrow(0, first, count);
    sum = sum + layer.moe.call(x, {});
    first += count;
  }
  EXPECT_TRUE(at::allclose(sum, want, 1e-5, 1e-6));
}

TEST(MoeLayer, ComputesWhatIsSharedOnceWhetherTheSeamAsksForItOrNot) {
  at::manual_seed(12);
  Layer layer;
  const at::Tensor x = at::randn({9, 6}), alone = layer.moe.call(x, {});
  layer.moe.add_shared("shared", std::make_unique<Linear>(6, 6, Linear::Bias::none, Init(), at::kFloat));
  layer.moe.add_shared_gate("shared_gate", {}, at::kFloat);
  auto& shared = dynamic_cast<Linear&>(*layer.moe.children()[2].second);
  auto& gate = dynamic_cast<Linear&>(*layer.moe.children()[3].second);
  const at::Tensor want = alone + at::linear(x, shared.weight) * at::sigmoid(at::linear(x, gate.weight));
  EXPECT_TRUE(at::allclose(layer.moe.call(x, {}), want, 1e-5, 1e-6));
  int asked = 0;
  layer.moe.experts().instead.add(Experts::Instead::around(
      "test", 0,
      [&](const at::Tensor& tokens, const model::Routing& routing, Experts& experts, const Batch& batch,
          model::Meanwhile& meanwhile, const Experts::Instead::Next& next) {
        ++asked;
        meanwhile.run();
        return next(tokens, routing, experts, batch, meanwhile);
      }));
  EXPECT_TRUE(at::allclose(layer.moe.call(x, {}), want, 1e-5, 1e-6));
  EXPECT_EQ(asked, 1);
}

// One row would be broadcast over all tokens.
TEST(Experts, RefuseALinkThatReturnsOtherRowsOrAnotherDtype) {
  Layer layer;
  const at::Tensor x = at::randn({9, 6});
  at::Tensor given;
  layer.moe.experts().instead.add(
      Experts::Instead::in_place("mine", [&](const at::Tensor&, const model::Routing&, Experts&, const Batch&,
                                             model::Meanwhile&) { return given; }));
  const auto said = [&](at::Tensor returned) {
    given = std::move(returned);
    return tests::thrown_by([&] { layer.moe.call(x, {}); });
  };
  EXPECT_EQ(
      said(at::zeros({1, 6})),
      "error[plugin_failed] Experts::instead: the link of 'mine' returned [1, 6] of Float for tokens [9, 6] "
      "of Float\n  hint: return a row for each token of x, in its order and dtype");
  EXPECT_NE(said(at::zeros({9, 6}, at::kDouble)).find("returned [9, 6] of Double for"), std::string::npos);
  EXPECT_NE(said({}).find("returned an undefined tensor for"), std::string::npos);
  EXPECT_EQ(said(at::zeros({9, 6})), "");
}

}  // namespace
}  // namespace heddle
