// The gated delta rule and its convolution equal the definition, one token after the other, with every
// gradient.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

const DeltaShape kDeltaShapes[] = {
    {"one_token", 1, 1, {1, 1, 3, 2}},
    {"short_rows", 3, 7, {2, 6, 5, 3}},
    {"one_chunk", 2, 64, {1, 2, 4, 4}},
    {"one_more", 1, 65, {3, 3, 2, 5}},
    {"three_chunks", 2, 150, {2, 4, 6, 7}},
    {"documents", 2, 150, {1, 2, 3, 4}, {0, 10, 11, 70, 128, 150, 163, 300}},
    {"documents_at_chunks", 1, 130, {2, 2, 3, 3}, {0, 64, 128, 129, 130}},
    {"tokens_alone", 1, 5, {1, 1, 2, 2}, {0, 1, 2, 3, 4, 5}},
    {"empty_document", 1, 9, {1, 1, 2, 2}, {0, 4, 4, 9}},
    {"channels_of_one_token", 1, 1, {1, 1, 3, 2, true}},
    {"channels_of_short_rows", 3, 7, {2, 6, 5, 3, true}},
    {"channels_of_one_more", 1, 65, {3, 3, 2, 5, true}},
    {"channels_of_three_chunks", 2, 150, {2, 4, 6, 7, true}},
    {"channels_in_documents", 2, 150, {1, 2, 3, 4, true}, {0, 10, 11, 70, 128, 150, 163, 300}},
    {"channels_of_tokens_alone", 1, 5, {1, 1, 2, 2, true}, {0, 1, 2, 3, 4, 5}},
    {"bounded", 3, 7, {2, 6, 5, 3, false, -0.5}},
    {"bounded_channels", 2, 150, {2, 4, 6, 7, true, -5}},
    {"bounded_channels_in_documents", 2, 70, {1, 2, 3, 4, true, -0.3}, {0, 10, 11, 70, 128, 140}},
};

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

at::Tensor plain_unit(const at::Tensor& x) {
  return x / ((x * x).sum(-1, true) + 1e-6).sqrt();
}

// The definition, token by token.
at::Tensor plain_rule(const DeltaInputs& in, const DeltaShape& shape) {
  const DeltaHeads& of = shape.heads;
  const int64_t tokens = in.v.size(0), group = of.value_heads / of.key_heads;
  const auto keys = [&](const at::Tensor& x) {
    return plain_unit(x.view({tokens, of.key_heads, of.key})).repeat_interleave(group, 1);
  };
  const at::Tensor q = keys(in.q) / std::sqrt(static_cast<double>(of.key)), k = keys(in.k);
  const at::Tensor v = in.v.view({tokens, of.value_heads, of.value});
  const at::Tensor open = (in.a + in.bias).view({tokens, of.value_heads, of.decays(), 1});
  const at::Tensor speed = in.a_log.exp().view({-1, 1, 1}), rate = in.b.sigmoid();
  const at::Tensor kept =
      (of.lowest < 0 ? at::sigmoid(speed * open) * of.lowest : -speed * at::softplus(open)).exp();
  at::Tensor state;
  std::vector<at::Tensor> out;
  for (int64_t t = 0; t < tokens; ++t) {
    state = shape.begins(t) ? at::zeros({of.value_heads, of.key, of.value}, at::kDouble) : state * kept[t];
    const at::Tensor known = (state * k[t].unsqueeze(2)).sum(1);
    const at::Tensor written = (v[t] - known) * rate[t].unsqueeze(1);
    state = state + k[t].unsqueeze(2) * written.unsqueeze(1);
    out.push_back((state * q[t].unsqueeze(2)).sum(1).flatten());
  }
  return at::stack(out);
}

const Rule<DeltaInputs, DeltaHeads> kDeltaRule = {
    delta_inputs, plain_rule,
    [](const DeltaInputs& in, const DeltaHeads& heads, const TokenRows& tokens, at::Tensor* state) {
      return decoder::delta_rule(in, heads, tokens, state);
    },
    5};

class DeltaRule : public ::testing::TestWithParam<DeltaShape> {
 protected:
  DeltaRule() { at::manual_seed(3); }
};

TEST_P(DeltaRule, EqualsTheDefinitionWithEveryGradient) {
  kDeltaRule.expect_definition(GetParam());
}

TEST_P(DeltaRule, IsNearInFloat) {
  kDeltaRule.expect_near_in_float(GetParam());
}

TEST_P(DeltaRule, GivesShapesOnMeta) {
  kDeltaRule.expect_shapes_on_meta(GetParam());
}

// Gates that forget all but at once, and that keep all.
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

// Gates that forget nearly all leave gradients far below those of other inputs.
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

at::Tensor plain_convolution(const at::Tensor& x, const at::Tensor& weight, const DeltaShape& shape) {
  const int64_t taps = weight.size(2);
  std::vector<at::Tensor> out;
  for (int64_t t = 0; t < x.size(0); ++t) {
    at::Tensor sum = x[t] * weight.select(2, taps - 1).select(1, 0);
    for (int64_t back = 1; back < taps && !shape.begins(t - back + 1); ++back)
      sum = sum + x[t - back] * weight.select(2, taps - 1 - back).select(1, 0);
    out.push_back(sum * sum.sigmoid());
  }
  return at::stack(out);
}

TEST_P(DeltaRule, HasConvolutionsThatStayInTheirDocuments) {
  const DeltaShape& shape = GetParam();
  for (const int64_t taps : {1, 4}) {
    expect_same([&](const auto& in) { return decoder::short_convolution(in[0], in[1], shape.tokens()); },
                [&](const auto& in) { return plain_convolution(in[0], in[1], shape); },
                {random_leaf({shape.rows * shape.sequence, 5}), random_leaf({5, 1, taps})}, 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DeltaRule, ::testing::ValuesIn(kDeltaShapes),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace heddle::tests
