// Extreme gates of the gated delta rule, and its state across chunks of a sequence.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "lib/decoder/delta_net/delta_rule.h"
#include "tests/decoder/rules.h"

namespace heddle::tests {
namespace {

using decoder::DeltaHeads;
using decoder::DeltaInputs;
using decoder::TokenRows;

using DeltaShape = RuleShape<DeltaHeads>;

std::vector<at::Tensor> delta_inputs(const DeltaShape& shape) {
  const int64_t tokens = shape.rows * shape.sequence;
  const DeltaHeads& heads = shape.heads;
  return {random_leaf({tokens, heads.key_heads * heads.key}),
          random_leaf({tokens, heads.key_heads * heads.key}),
          random_leaf({tokens, heads.value_heads * heads.value}),
          random_leaf({tokens, heads.value_heads * heads.decays()}),
          random_leaf({tokens, heads.value_heads}),
          random_leaf({heads.value_heads}),
          random_leaf({heads.value_heads * heads.decays()})};
}

const Rule<DeltaInputs, DeltaHeads> kDeltaRule = {
    delta_inputs,
    [](const DeltaInputs& in, const DeltaHeads& heads, const TokenRows& tokens, at::Tensor* state) {
      return decoder::delta_rule(in, heads, tokens, state);
    },
    5};

// Gates that forget the whole state at once, and gates that keep all of it.
TEST(DeltaRuleLimits, AreFinite) {
  for (const auto& [open, channels] : {std::pair{-60.0, false}, {60.0, false}, {-60.0, true}, {60.0, true}}) {
    const DeltaShape shape{"long", 1, 130, {1, 2, 4, 3, channels}};
    at::manual_seed(4);
    std::vector<at::Tensor> all = delta_inputs(shape);
    for (at::Tensor& one : all) one = one.detach().to(at::kFloat);
    DeltaInputs in = kDeltaRule.of(all);
    in.a = (in.a + open).detach().set_requires_grad(true);
    in.k.set_requires_grad(true);
    const at::Tensor got = decoder::delta_rule(in, shape.heads, shape.tokens());
    got.square().sum().backward();
    EXPECT_TRUE(got.isfinite().all().item<bool>()) << open;
    EXPECT_TRUE(in.k.grad().isfinite().all().item<bool>()) << open;
    EXPECT_TRUE(in.a.grad().isfinite().all().item<bool>()) << open;
  }
}

// Gates that forget almost everything give gradients far smaller than those of the other inputs.
void expect_exact_gradients(bool channels) {
  at::manual_seed(11);
  const DeltaShape shape{"forgets", 1, 70, {1, 1, 8, 8, channels}};
  const DeltaInputs wide = kDeltaRule.of(delta_inputs(shape));
  DeltaInputs narrow;
  at::Tensor DeltaInputs::*const all[] = {&DeltaInputs::q,   &DeltaInputs::k, &DeltaInputs::v,
                                          &DeltaInputs::a,   &DeltaInputs::b, &DeltaInputs::a_log,
                                          &DeltaInputs::bias};
  {
    const at::NoGradGuard no_gradients;
    wide.a_log.fill_(2.2);
    for (const auto one : all) {
      narrow.*one = (wide.*one).to(at::kFloat);
      (wide.*one).copy_(narrow.*one);
    }
  }
  for (const auto one : all) (narrow.*one).set_requires_grad(true);
  decoder::delta_rule(wide, shape.heads, shape.tokens()).square().sum().backward();
  decoder::delta_rule(narrow, shape.heads, shape.tokens()).square().sum().backward();
  for (const auto one : {&DeltaInputs::a, &DeltaInputs::a_log, &DeltaInputs::bias}) {
    const at::Tensor want = (wide.*one).grad(), got = (narrow.*one).grad().to(at::kDouble);
    EXPECT_LE(((got - want).abs().max() / want.abs().max()).item<double>(), 1e-4);
  }
}

TEST(DeltaRuleLimits, HaveExactGradientsOfGatesThatForget) {
  for (const bool channels : {false, true}) expect_exact_gradients(channels);
}

TEST(DeltaRuleState, ContinuesAsTheWhole) {
  at::manual_seed(5);
  for (const bool channels : {false, true})
    kDeltaRule.expect_continues({"whole", 1, 140, {2, 4, 3, 5, channels}}, {70, 1, 1, 64, 4});
}

}  // namespace
}  // namespace heddle::tests
