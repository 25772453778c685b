// The state space rule of Mamba-2, its convolution and its norm equal the definitions, one token after the
// other, with every gradient; gradients equal finite differences.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "lib/decoder/mamba/group_norm.h"
#include "lib/decoder/mamba/state_scan.h"
#include "tests/decoder/rules.h"

namespace heddle::tests {
namespace {

using decoder::ScanHeads;
using decoder::ScanInputs;
using decoder::TokenRows;

using ScanShape = RuleShape<ScanHeads>;

const ScanShape kScanShapes[] = {
    {"one_token", 1, 1, {1, 1, 3, 2}},
    {"short_rows", 3, 7, {2, 6, 5, 3}},
    {"one_chunk", 2, 64, {1, 2, 4, 4}},
    {"one_more", 1, 65, {3, 3, 2, 5}},
    {"three_chunks", 2, 150, {2, 4, 6, 7}},
    {"cut_steps", 1, 90, {1, 3, 4, 2, 0.5, 0.9}},
    {"documents", 2, 150, {1, 2, 3, 4}, {0, 10, 11, 70, 128, 150, 163, 300}},
    {"documents_at_chunks", 1, 130, {2, 2, 3, 3}, {0, 64, 128, 129, 130}},
    {"tokens_alone", 1, 5, {1, 1, 2, 2}, {0, 1, 2, 3, 4, 5}},
    {"empty_document", 1, 9, {1, 1, 2, 2}, {0, 4, 4, 9}},
};

ScanInputs scan_inputs(const ScanShape& shape) {
  const int64_t tokens = shape.rows * shape.sequence;
  const ScanHeads& of = shape.heads;
  return {random_leaf({tokens, of.heads * of.width}),
          random_leaf({tokens, of.groups * of.state}),
          random_leaf({tokens, of.groups * of.state}),
          random_leaf({tokens, of.heads}),
          random_leaf({of.heads}),
          random_leaf({of.heads}),
          random_leaf({of.heads})};
}

std::array<at::Tensor*, 7> all_of(ScanInputs& in) {
  return {&in.x, &in.b, &in.c, &in.dt, &in.a_log, &in.bias, &in.direct};
}

// The definition, token by token.
at::Tensor plain_scan(const ScanInputs& in, const ScanShape& shape) {
  const ScanHeads& of = shape.heads;
  const int64_t tokens = in.x.size(0), group = of.heads / of.groups;
  const auto shared = [&](const at::Tensor& given) {
    return given.view({tokens, of.groups, of.state}).repeat_interleave(group, 1);
  };
  const at::Tensor b = shared(in.b), c = shared(in.c), x = in.x.view({tokens, of.heads, of.width});
  const at::Tensor step = at::softplus(in.dt + in.bias).clamp(of.shortest, of.longest);
  const at::Tensor kept = (-in.a_log.exp() * step).exp();
  at::Tensor state;
  std::vector<at::Tensor> out;
  for (int64_t t = 0; t < tokens; ++t) {
    state = shape.begins(t) ? at::zeros({of.heads, of.state, of.width}, at::kDouble)
                            : state * kept[t].view({-1, 1, 1});
    state = state + b[t].unsqueeze(2) * (x[t] * step[t].unsqueeze(1)).unsqueeze(1);
    out.push_back(((state * c[t].unsqueeze(2)).sum(1) + x[t] * in.direct.unsqueeze(1)).flatten());
  }
  return at::stack(out);
}

class StateScan : public ::testing::TestWithParam<ScanShape> {
 protected:
  StateScan() { at::manual_seed(3); }
};

TEST_P(StateScan, EqualsTheDefinitionWithEveryGradient) {
  const ScanShape& shape = GetParam();
  ScanInputs in = scan_inputs(shape);
  const at::Tensor want = plain_scan(in, shape);
  const at::Tensor factors = at::randn_like(want);
  (want * factors).sum().backward();
  std::vector<at::Tensor> gradients;
  for (at::Tensor* one : all_of(in)) {
    gradients.push_back(one->grad().defined() ? one->grad().clone() : at::zeros_like(*one));
    one->mutable_grad().reset();
  }
  const at::Tensor got = decoder::state_scan(in, shape.heads, shape.tokens());
  expect_near_double(got, want, 1e-12, "output");
  (got * factors).sum().backward();
  for (size_t i = 0; i < gradients.size(); ++i)
    expect_near_double(all_of(in)[i]->grad(), gradients[i], 1e-11, "input " + std::to_string(i));
}

TEST_P(StateScan, IsNearInFloat) {
  const ScanShape& shape = GetParam();
  ScanInputs in = scan_inputs(shape);
  const at::Tensor want = plain_scan(in, shape);
  for (at::Tensor* one : all_of(in)) *one = one->detach().to(at::kFloat);
  expect_near_double(decoder::state_scan(in, shape.heads, shape.tokens()), want, 1e-5, "output");
}

TEST_P(StateScan, GivesShapesOnMeta) {
  const ScanShape& shape = GetParam();
  ScanInputs in = scan_inputs(shape);
  for (at::Tensor* one : all_of(in)) *one = one->detach().to(at::kMeta).set_requires_grad(true);
  TokenRows tokens = shape.tokens();
  if (tokens.documents.defined()) tokens.documents = tokens.documents.to(at::kMeta);
  const at::Tensor got = decoder::state_scan(in, shape.heads, tokens);
  EXPECT_EQ(got.sizes(), in.x.sizes());
  got.backward(at::empty_like(got));
  EXPECT_EQ(in.direct.grad().sizes(), in.direct.sizes());
}

INSTANTIATE_TEST_SUITE_P(Shapes, StateScan, ::testing::ValuesIn(kScanShapes),
                         [](const auto& info) { return info.param.name; });

// The whole scan and then the norm, against differences of the loss.
TEST(StateScanGradients, EqualFiniteDifferences) {
  at::manual_seed(4);
  const ScanShape shape{"", 1, 66, {1, 2, 3, 2}, {0, 20, 66}};
  ScanInputs in = scan_inputs(shape);
  const at::Tensor gate = random_leaf({66, 4}), weight = random_leaf({4}),
                   factors = at::randn({66, 4}, at::kDouble);
  const auto loss = [&] {
    const at::Tensor y = decoder::state_scan(in, shape.heads, shape.tokens());
    return (decoder::gated_group_norm(y, gate, weight, 2, 1e-5) * factors).sum();
  };
  loss().backward();
  std::vector<at::Tensor> all = {gate, weight};
  for (at::Tensor* one : all_of(in)) all.push_back(*one);
  const at::NoGradGuard guard;
  for (size_t i = 0; i < all.size(); ++i) {
    const at::Tensor along = at::randn_like(all[i]), before = all[i].clone();
    constexpr double kStep = 1e-6;
    all[i].copy_(before + along * kStep);
    const double above = loss().item<double>();
    all[i].copy_(before - along * kStep);
    const double below = loss().item<double>();
    all[i].copy_(before);
    const double want = (above - below) / (2 * kStep), got = (all[i].grad() * along).sum().item<double>();
    EXPECT_NEAR(got, want, 1e-7 * std::max(1.0, std::abs(want))) << "input " << i;
  }
}

// A sequence in stretches equals the sequence at once.
TEST(StateScanState, ContinuesWhereItWas) {
  at::manual_seed(5);
  const ScanShape shape{"", 1, 100, {2, 4, 3, 5}};
  const at::NoGradGuard guard;
  const ScanInputs in = scan_inputs(shape);
  const at::Tensor want = decoder::state_scan(in, shape.heads, shape.tokens());
  at::Tensor state;
  std::vector<at::Tensor> got;
  for (const auto& [first, count] : {std::pair{0, 70}, {70, 1}, {71, 1}, {72, 28}}) {
    const auto part = [first = first, count = count](const at::Tensor& x) {
      return x.narrow(0, first, count);
    };
    const ScanInputs next{part(in.x), part(in.b), part(in.c), part(in.dt), in.a_log, in.bias, in.direct};
    got.push_back(decoder::state_scan(next, shape.heads, {1, count, {}}, &state));
  }
  expect_near_double(at::cat(got), want, 1e-13, "output");
}

TEST(GatedGroupNorm, EqualsPlainOperators) {
  at::manual_seed(6);
  const at::Tensor x = random_leaf({7, 15}), gate = random_leaf({7, 15}), weight = random_leaf({15});
  const at::Tensor gated = (x * gate * gate.sigmoid()).view({7, 3, 5});
  const at::Tensor want = (gated / (gated.square().mean(-1, true) + 1e-5).sqrt()).view({7, 15}) * weight;
  const at::Tensor factors = at::randn_like(want);
  (want * factors).sum().backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& one : {x, gate, weight}) {
    gradients.push_back(one.grad().clone());
    one.mutable_grad().reset();
  }
  const at::Tensor got = decoder::gated_group_norm(x, gate, weight, 5, 1e-5);
  expect_near_double(got, want, 1e-13, "output");
  (got * factors).sum().backward();
  expect_near_double(x.grad(), gradients[0], 1e-13, "x");
  expect_near_double(gate.grad(), gradients[1], 1e-13, "gate");
  expect_near_double(weight.grad(), gradients[2], 1e-13, "weight");
}

// With a bias, in documents, and continued.
TEST(ShortConvolution, HasABias) {
  at::manual_seed(7);
  const at::Tensor x = random_leaf({11, 3}), weight = random_leaf({3, 1, 4}), bias = random_leaf({3});
  const at::Tensor padded = at::constant_pad_nd(x.t().unsqueeze(0), {3, 0});
  const at::Tensor want = at::silu(at::conv1d(padded, weight, bias, at::IntArrayRef(1), at::IntArrayRef(0),
                                              at::IntArrayRef(1), 3))
                              .squeeze(0)
                              .t();
  const at::Tensor factors = at::randn_like(want);
  (want * factors).sum().backward();
  const at::Tensor d_x = x.grad().clone(), d_weight = weight.grad().clone(), d_bias = bias.grad().clone();
  for (const at::Tensor& one : {x, weight, bias}) one.mutable_grad().reset();
  const at::Tensor got = decoder::short_convolution(x, weight, {1, 11, {}}, bias);
  expect_near_double(got, want, 1e-13, "output");
  (got * factors).sum().backward();
  expect_near_double(x.grad(), d_x, 1e-12, "x");
  expect_near_double(weight.grad(), d_weight, 1e-12, "weight");
  expect_near_double(bias.grad(), d_bias, 1e-12, "bias");
  const at::NoGradGuard guard;
  at::Tensor last;
  const at::Tensor first = decoder::continued_convolution(x.narrow(0, 0, 4), weight, last, bias);
  const at::Tensor rest = decoder::continued_convolution(x.narrow(0, 4, 7), weight, last, bias);
  expect_near_double(at::cat({first, rest}), want, 1e-13, "continued");
}

}  // namespace
}  // namespace heddle::tests
