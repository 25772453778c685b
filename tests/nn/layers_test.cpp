// Each hand-written layer equals its plain ATen composition, in fp64, fp32 and bf16.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include <cmath>

#include "heddle/base/error.h"
#include "heddle/nn/activation.h"
#include "heddle/nn/attention_core.h"
#include "heddle/nn/embedding.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/rms_norm.h"
#include "heddle/nn/rotary.h"
#include "nn/against_aten.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using tests::expect_same;
using tests::tolerance_of;
using Inputs = std::vector<at::Tensor>;

class LayersIn : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(7); }
  at::Tensor random(at::IntArrayRef shape) { return at::randn(shape, at::kDouble).to(GetParam()); }
  double tolerance() { return tolerance_of(GetParam()); }
};

TEST_P(LayersIn, LinearIsAProductAndABias) {
  const auto ours = [](const Inputs& in) { return model::linear(in[0], in[1], in[2]); };
  const auto theirs = [](const Inputs& in) { return at::linear(in[0], in[1], in[2]); };
  expect_same(ours, theirs, {random({5, 7}), random({3, 7}), random({3})}, tolerance());
  expect_same(ours, theirs, {random({2, 5, 7}), random({3, 7}), random({3})}, tolerance());
}

TEST_P(LayersIn, LinearWithoutABiasHasNone) {
  expect_same([](const Inputs& in) { return model::linear(in[0], in[1], {}); },
              [](const Inputs& in) { return at::linear(in[0], in[1]); }, {random({4, 7}), random({3, 7})},
              tolerance());
}

TEST_P(LayersIn, LinearOntoAResidualIsTheirSum) {
  const auto ours = [](const Inputs& in) { return model::linear_onto(in[3], in[0], in[1], in[2]); };
  const auto theirs = [](const Inputs& in) { return in[3] + at::linear(in[0], in[1], in[2]); };
  expect_same(ours, theirs, {random({5, 7}), random({3, 7}), random({3}), random({5, 3})}, tolerance());
  expect_same(ours, theirs, {random({2, 5, 7}), random({3, 7}), random({3}), random({2, 5, 3})}, tolerance());
}

class SeveralLinears {
 public:
  explicit SeveralLinears(at::ScalarType dtype)
      : first(7, 3, Linear::Bias::zeros, {}, dtype), second(7, 5, Linear::Bias::none, {}, dtype) {}
  // The layers compute with the inputs' tensors: x, weight and bias of the first, weight of the second.
  at::Tensor run(const Inputs& in) {
    first.weight = in[1];
    first.bias = in[2];
    second.weight = in[3];
    return at::cat(model::call_each({&first, &second}, in[0], {}), 1);
  }
  Linear first, second;
};

TEST_P(LayersIn, SeveralLinearsOfOneInputAreOneNodeOrEachItsOwnBehindSeams) {
  SeveralLinears plain(GetParam()), seamed(GetParam());
  seamed.first.output.add([](at::Tensor y) { return y * 2; });
  const Inputs inputs{random({4, 7}), random({3, 7}), random({3}), random({5, 7})};
  const auto theirs = [](double factor) {
    return [factor](const Inputs& in) {
      return at::cat({at::linear(in[0], in[1], in[2]) * factor, at::linear(in[0], in[3])}, 1);
    };
  };
  expect_same([&](const Inputs& in) { return plain.run(in); }, theirs(1), inputs, tolerance());
  expect_same([&](const Inputs& in) { return seamed.run(in); }, theirs(2), inputs, tolerance());
}

TEST(Linear, AddsTheResidualBehindItsOutputSeam) {
  Linear layer(3, 3, Linear::Bias::none, {}, at::kFloat);
  const at::Tensor x = at::randn({2, 3}), residual = at::randn({2, 3});
  const at::Tensor plain = layer.call_onto(residual, x, {});
  layer.output.add([](at::Tensor y) { return y * 3; });
  const at::Tensor seamed = layer.call_onto(residual, x, {});
  EXPECT_TRUE(at::allclose(seamed - residual, (plain - residual) * 3, 1e-4, 1e-6));
}

at::Tensor plain_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::ScalarType wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor rows = x.view({-1, weight.numel()}).to(wide);
  const at::Tensor normal = rows * (rows.pow(2).mean(-1, true) + eps).rsqrt();
  return (weight * normal.to(x.scalar_type())).view(x.sizes());
}

TEST_P(LayersIn, RmsNormIsNormalisedWideAndRoundedBeforeTheWeight) {
  const auto ours = [](const Inputs& in) { return model::rms_norm(in[0], in[1], 1e-5); };
  const auto theirs = [](const Inputs& in) { return plain_rms_norm(in[0], in[1], 1e-5); };
  expect_same(ours, theirs, {random({6, 40}), random({40})}, tolerance());
  expect_same(ours, theirs, {random({1, 3}), random({3})}, tolerance());
}

TEST_P(LayersIn, RmsNormOfSeveralHeadsNormalisesEach) {
  expect_same([](const Inputs& in) { return model::rms_norm(in[0], in[1], 1e-6); },
              [](const Inputs& in) { return plain_rms_norm(in[0], in[1], 1e-6); },
              {random({5, 72}), random({24})}, tolerance());
}

TEST_P(LayersIn, LayerNormIsNormalisedWideAndRoundedOnce) {
  const auto theirs = [](const Inputs& in) {
    const at::ScalarType wide = in[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor x = in[0].to(wide), centred = x - x.mean(-1, true);
    const at::Tensor normal = centred * (centred.square().mean(-1, true) + 1e-5).rsqrt() * in[1].to(wide);
    return (in.size() > 2 ? normal + in[2].to(wide) : normal).to(in[0].scalar_type());
  };
  expect_same([](const Inputs& in) { return model::layer_norm(in[0], in[1], in[2], 1e-5); }, theirs,
              {random({6, 40}), random({40}), random({40})}, tolerance());
  expect_same([](const Inputs& in) { return model::layer_norm(in[0], in[1], {}, 1e-5); }, theirs,
              {random({5, 7}), random({7})}, tolerance());
}

TEST_P(LayersIn, GatesAreTheActivationTimesUp) {
  for (const bool tanh : {false, true}) {
    const auto activation = tanh ? model::Activation::gelu_tanh : model::Activation::gelu;
    expect_same([&](const Inputs& in) { return model::gated(activation, in[0], in[1]); },
                [&](const Inputs& in) { return at::gelu(in[0], tanh ? "tanh" : "none") * in[1]; },
                {random({5, 57}), random({5, 57})}, tolerance());
  }
}

TEST_P(LayersIn, SwigluIsSiluOfTheGateTimesUp) {
  expect_same([](const Inputs& in) { return model::swiglu(in[0], in[1]); },
              [](const Inputs& in) { return at::silu(in[0]) * in[1]; }, {random({5, 57}), random({5, 57})},
              tolerance());
}

at::Tensor plain_rotation(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const int64_t half = cos.size(1);
  const at::Tensor heads = x.view({x.size(0), -1, 2 * half});
  const at::Tensor turned = at::cat({-heads.narrow(2, half, half), heads.narrow(2, 0, half)}, 2);
  const at::Tensor c = at::cat({cos, cos}, 1).unsqueeze(1), s = at::cat({sin, sin}, 1).unsqueeze(1);
  return (heads * c + turned * s).to(x.scalar_type()).view(x.sizes());
}

TEST_P(LayersIn, RotationTurnsBothHalvesOfEveryHead) {
  const at::Tensor angle = at::randn({4, 5}) * 3, cos = angle.cos(), sin = angle.sin();
  const auto ours = [&](const Inputs& in) {
    const auto [q, k] = model::rotate(in[0], in[1], {cos, sin});
    return at::cat({q, k}, 1);
  };
  const auto theirs = [&](const Inputs& in) {
    return at::cat({plain_rotation(in[0], cos, sin), plain_rotation(in[1], cos, sin)}, 1);
  };
  expect_same(ours, theirs, {random({4, 30}), random({4, 10})}, tolerance());
}

at::Tensor plain_attention(const Inputs& in, const model::Heads& heads) {
  const auto split = [&](const at::Tensor& x) {
    return x.view({heads.batch, heads.sequence, -1, heads.head_dim}).transpose(1, 2);
  };
  const at::Tensor q = split(in[0]);
  const int64_t groups = q.size(1) / split(in[1]).size(1);
  const at::Tensor k = split(in[1]).repeat_interleave(groups, 1),
                   v = split(in[2]).repeat_interleave(groups, 1);
  const at::Tensor future = at::ones({heads.sequence, heads.sequence}, at::kBool).triu(1);
  const at::Tensor scores = (q.matmul(k.transpose(-1, -2)) / std::sqrt(double(heads.head_dim)))
                                .masked_fill(future, -std::numeric_limits<double>::infinity());
  return scores.softmax(-1).matmul(v).transpose(1, 2).reshape(in[0].sizes());
}

TEST_P(LayersIn, AttentionSeesThePastOnlyAndSharesKeysAmongHeads) {
  const model::Heads heads{2, 9, 6};
  expect_same([&](const Inputs& in) { return model::attend(in[0], in[1], in[2], heads); },
              [&](const Inputs& in) { return plain_attention(in, heads); },
              {random({18, 24}), random({18, 12}), random({18, 12})}, tolerance());
}

TEST_P(LayersIn, EmbeddingAddsTheGradientsOfEqualTokens) {
  const at::Tensor tokens = at::tensor({3, 1, 3, 0, 3, 1}, at::kLong).view({2, 3});
  expect_same([&](const Inputs& in) { return model::embedding(tokens, in[0], -1); },
              [&](const Inputs& in) { return at::embedding(in[0], tokens.view({-1})); }, {random({5, 4})},
              tolerance());
}

INSTANTIATE_TEST_SUITE_P(Dtypes, LayersIn, ::testing::Values(at::kDouble, at::kFloat, at::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

TEST(Embedding, LeavesThePaddingRowWithoutAGradient) {
  const at::Tensor tokens = at::tensor({2, 1, 2}, at::kLong);
  at::Tensor weight = at::randn({4, 3}).set_requires_grad(true);
  model::embedding(tokens, weight, 2).sum().backward();
  EXPECT_EQ(weight.grad()[2].abs().sum().item<float>(), 0.0F);
  EXPECT_EQ(weight.grad()[1].sum().item<float>(), 3.0F);
}

TEST(Embedding, NamesATokenOutsideTheVocabulary) {
  const at::Tensor tokens = at::tensor({2, 300}, at::kLong), weight = at::randn({256, 3});
  EXPECT_EQ(tests::thrown_by([&] { model::embedding(tokens, weight, -1); }),
            "error[input] embedding: token 300 is outside the vocabulary of 256\n"
            "  hint: use a token file and a model of the same tokenizer");
}

TEST(Layers, RefuseASecondDerivative) {
  at::Tensor x = at::randn({2, 3}).set_requires_grad(true), w = at::randn({3}).set_requires_grad(true);
  const at::Tensor y = model::rms_norm(x, w, 1e-6).sum();
  EXPECT_THAT(tests::thrown_by([&] { torch::autograd::grad({y}, {x}, {}, true, true); }),
              ::testing::HasSubstr("RmsNormBackward has no second derivative"));
}

TEST(Linear, IsOneNode) {
  const at::Tensor x = at::randn({2, 3}).set_requires_grad(true);
  const Linear layer(3, 4, Linear::Bias::zeros, {}, at::kFloat);
  const at::Tensor y = model::linear(x, layer.weight, layer.bias);
  EXPECT_EQ(y.grad_fn()->name(), "LinearBackward");
  EXPECT_EQ(y.grad_fn()->next_edge(0).function->name(), "torch::autograd::AccumulateGrad");
}

TEST_P(LayersIn, RmsNormOfOnePlusTheWeightIsWideToTheEnd) {
  const auto theirs = [](const Inputs& in) {
    const at::ScalarType wide = in[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor rows = in[0].to(wide);
    const at::Tensor normal = rows * (rows.square().mean(-1, true) + 1e-6).rsqrt();
    return (normal * (1 + in[1].to(wide))).to(in[0].scalar_type());
  };
  expect_same([](const Inputs& in) { return model::rms_norm_plus_one(in[0], in[1], 1e-6); }, theirs,
              {random({5, 12}), random({12})}, tolerance());
  RmsNorm norm(12, 1e-6, at::TensorOptions().dtype(GetParam()), RmsNorm::Scale::one_plus_weight);
  EXPECT_EQ(norm.weight.abs().max().item<double>(), 0);
  EXPECT_EQ(norm.slots()[0].init.kind, Init::Kind::zeros);
  const at::Tensor x = random({5, 12});
  tests::expect_close(norm.call(x, {}), theirs({x, norm.weight}), tolerance(), "module");
}

}  // namespace
}  // namespace heddle
