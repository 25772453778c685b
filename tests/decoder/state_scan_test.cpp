// The state space rule of Mamba-2, its convolution and its norm equal the definitions, one token after the
// other, with every gradient; gradients equal finite differences.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
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

std::vector<at::Tensor> scan_inputs(const ScanShape& shape) {
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

const Rule<ScanInputs, ScanHeads> kScan = {
    scan_inputs, plain_scan,
    [](const ScanInputs& in, const ScanHeads& heads, const TokenRows& tokens, at::Tensor* state) {
      return decoder::state_scan(in, heads, tokens, state);
    },
    4};

class StateScan : public ::testing::TestWithParam<ScanShape> {
 protected:
  StateScan() { at::manual_seed(3); }
};

TEST_P(StateScan, EqualsTheDefinitionWithEveryGradient) {
  kScan.expect_definition(GetParam());
}

TEST_P(StateScan, IsNearInFloat) {
  kScan.expect_near_in_float(GetParam());
}

TEST_P(StateScan, GivesShapesOnMeta) {
  kScan.expect_shapes_on_meta(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Shapes, StateScan, ::testing::ValuesIn(kScanShapes),
                         [](const auto& info) { return info.param.name; });

// The whole scan and then the norm, against differences of the loss.
TEST(StateScanGradients, EqualFiniteDifferences) {
  at::manual_seed(4);
  const ScanShape shape{"", 1, 66, {1, 2, 3, 2}, {0, 20, 66}};
  std::vector<at::Tensor> all = scan_inputs(shape);
  const at::Tensor gate = random_leaf({66, 4}), weight = random_leaf({4}),
                   factors = at::randn({66, 4}, at::kDouble);
  const auto loss = [&] {
    const at::Tensor y = decoder::state_scan(kScan.of(all), shape.heads, shape.tokens());
    return (decoder::gated_group_norm(y, gate, weight, 2, 1e-5) * factors).sum();
  };
  loss().backward();
  all.insert(all.end(), {gate, weight});
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
  kScan.expect_continues({"", 1, 100, {2, 4, 3, 5}}, {70, 1, 1, 28});
}

TEST(GatedGroupNorm, EqualsPlainOperators) {
  at::manual_seed(6);
  expect_same([](const auto& in) { return decoder::gated_group_norm(in[0], in[1], in[2], 5, 1e-5); },
              [](const auto& in) {
                const at::Tensor gated = (in[0] * in[1] * in[1].sigmoid()).view({7, 3, 5});
                return (gated / (gated.square().mean(-1, true) + 1e-5).sqrt()).view({7, 15}) * in[2];
              },
              {random_leaf({7, 15}), random_leaf({7, 15}), random_leaf({15})}, 1e-12);
}

// With a bias, in documents, and continued.
TEST(ShortConvolution, HasABias) {
  at::manual_seed(7);
  const at::Tensor x = random_leaf({11, 3}), weight = random_leaf({3, 1, 4}), bias = random_leaf({3});
  const auto plain = [](const std::vector<at::Tensor>& in) {
    const at::Tensor padded = at::constant_pad_nd(in[0].t().unsqueeze(0), {3, 0});
    return at::silu(at::conv1d(padded, in[1], in[2], at::IntArrayRef(1), at::IntArrayRef(0),
                               at::IntArrayRef(1), 3))
        .squeeze(0)
        .t();
  };
  expect_same(
      [](const auto& in) {
        return decoder::short_convolution(in[0], in[1], {1, 11, {}}, in[2]);
      },
      plain, {x, weight, bias}, 1e-12);
  const at::NoGradGuard guard;
  at::Tensor last;
  const at::Tensor first = decoder::continued_convolution(x.narrow(0, 0, 4), weight, last, bias);
  const at::Tensor rest = decoder::continued_convolution(x.narrow(0, 4, 7), weight, last, bias);
  expect_near_double(at::cat({first, rest}), plain({x, weight, bias}), 1e-13, "continued");
}

}  // namespace
}  // namespace heddle::tests
