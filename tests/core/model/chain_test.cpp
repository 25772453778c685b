// Several plugins at one seam: their order, shared objects, and refusals.
#include "heddle/model/chain.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include "heddle/nn/attention_core.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/token_loss.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using Text = Chain<std::string(std::string)>;

Text::LinkPointer wraps(const std::string& name, int order) {
  return Text::around(name, order, [name](std::string given, const Text::Next& next) {
    return name + "(" + next(given + ">" + name) + ")";
  });
}

TEST(Chain, CallsLinksInOrderAndTheModuleLast) {
  Text chain("seam");
  const auto own = [](std::string given) { return "own " + given; };
  EXPECT_TRUE(chain.empty());
  EXPECT_EQ(chain.call(own, "x"), "own x");
  chain.add(wraps("b", 20));
  chain.add(wraps("a", 10));
  chain.add(wraps("c", 30));
  EXPECT_EQ(chain.call(own, "x"), "a(b(c(own x>a>b>c)))");
  chain.add(Text::in_place("d", [](std::string given) { return "d " + given; }));
  EXPECT_EQ(chain.call(own, "x"), "a(b(c(d x>a>b>c)))");
  chain.add(wraps("z", 25));  // also after a link that was there first
  EXPECT_EQ(chain.call(own, "x"), "a(b(z(c(d x>a>b>z>c))))");
}

TEST(Chain, RefusesTwoPartsThatCannotBeCombined) {
  Text chain("Linear::instead");
  chain.add(wraps("lora", 10));
  EXPECT_EQ(
      tests::thrown_by([&] { chain.add(wraps("acme", 10)); }),
      "error[plugin_conflict] Linear::instead: 'lora' and 'acme' are both around the layer with the order "
      "10, so nothing says which calls the other\n  hint: give one of them another order");
  chain.add(Text::in_place("tensor", [](std::string given) { return given; }));
  EXPECT_EQ(
      tests::thrown_by([&] { chain.add(Text::in_place("acme", [](std::string given) { return given; })); }),
      "error[plugin_conflict] Linear::instead: 'tensor' and 'acme' both compute in place of the layer, so "
      "one of them would never be called\n  hint: train without one of them, or let one of them call the "
      "other (Chain::around)");
  EXPECT_EQ(tests::thrown_by([&] { chain.add(wraps("", 11)); }),
            "error[input] Linear::instead: a link without the name of its plugin\n  hint: make links with "
            "Chain::around or Chain::in_place");
  EXPECT_EQ(tests::thrown_by([&] { chain.add(Text::around("acme", 11, {})); }),
            "error[input] Linear::instead: the link of 'acme' has no function\n  hint: make links with "
            "Chain::around or Chain::in_place");
}

struct Three {
  const at::TensorOptions options = at::TensorOptions(at::kFloat);
  const Init init{Init::Kind::normal, 0.3};
  Linear a{5, 4, Linear::Bias::zeros, init, options}, b{5, 3, Linear::Bias::none, init, options},
      c{5, 2, Linear::Bias::none, init, options};
  const at::Tensor x = at::rand({6, 5});
};

Linear::Instead::LinkPointer doubling(int order, int* calls) {
  return Linear::Instead::around("double", order,
                                 [calls](std::span<Linear* const> layers, const at::Tensor& x,
                                         const Batch& batch, const Linear::Instead::Next& next) {
                                   ++*calls;
                                   model::FewTensors out = next(layers, x, batch);
                                   for (at::Tensor& y : out) y = y * 2;
                                   return out;
                                 });
}

TEST(Chain, ComputesLayersWithSharedLinksByOneCall) {
  Three of;
  int calls = 0;
  const auto twice = doubling(10, &calls);
  const model::FewTensors plain = model::call_each({&of.a, &of.b, &of.c}, of.x, {});
  for (Linear* layer : {&of.a, &of.b}) layer->instead.add(twice);
  EXPECT_FALSE(of.a.plain());
  EXPECT_TRUE(of.a.instead == of.b.instead);
  EXPECT_FALSE(of.a.instead == of.c.instead);
  model::FewTensors two = model::call_each({&of.a, &of.b}, of.x, {});
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(at::allclose(two[0], plain[0] * 2));
  two = model::call_each({&of.a, &of.c}, of.x, {});  // different links: one call each
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(at::allclose(two[0], plain[0] * 2));
  EXPECT_TRUE(at::allclose(two[1], plain[2]));
  for (Linear* layer : {&of.a, &of.b}) layer->instead.add(doubling(20, &calls));  // separate links
  EXPECT_FALSE(of.a.instead == of.b.instead);
  const at::Tensor onto = of.a.call_onto(at::rand({6, 4}).zero_(), of.x, {});
  EXPECT_TRUE(at::allclose(onto, plain[0] * 4));
}

TEST(Chain, WrapsAttentionAndTheLoss) {
  AttentionCore core(4);
  Batch batch;
  batch.tokens = at::randint(9, {2, 3}, at::kLong);
  const at::Tensor q = at::rand({6, 8}), k = at::rand({6, 4}), v = at::rand({6, 4});
  const at::Tensor plain = core.attend(q, k, v, batch);
  core.instead.add(AttentionCore::Instead::around(
      "cap", 5,
      [](at::Tensor q, at::Tensor k, at::Tensor v, const model::Heads& heads, const Batch& batch,
         const AttentionCore::Instead::Next& next) { return next(q, k, v + 1, heads, batch) - 1; }));
  EXPECT_TRUE(at::allclose(core.attend(q, k, v, batch), plain, 1e-4, 1e-5));

  Three of;
  TokenLoss loss;
  batch.labels = at::randint(4, {2, 3}, at::kLong);
  const at::Tensor whole = loss.of(of.x, of.a, batch);
  loss.instead.add(TokenLoss::Instead::around(
      "half", 0,
      [](const at::Tensor& hidden, Linear& head, const Batch& batch, const TokenLoss::Instead::Next& next) {
        return next(hidden, head, batch) * 0.5;
      }));
  EXPECT_TRUE(at::allclose(loss.of(of.x, of.a, batch), whole * 0.5));
}

}  // namespace
}  // namespace heddle
