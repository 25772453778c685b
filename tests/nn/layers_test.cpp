// Hooks, autograd nodes, initialization and refusals of layers. tests/operators compares their values.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include "heddle/nn/embedding.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/rms_norm.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

TEST(Linear, AddsTheResidualBehindItsOutputSeam) {
  Linear layer(3, 3, Linear::Bias::none, {}, at::kFloat);
  const at::Tensor x = at::randn({2, 3}), residual = at::randn({2, 3});
  const at::Tensor plain = layer.call_onto(residual, x, {});
  layer.output.add([](at::Tensor y) { return y * 3; });
  const at::Tensor seamed = layer.call_onto(residual, x, {});
  EXPECT_TRUE(at::allclose(seamed - residual, (plain - residual) * 3, 1e-4, 1e-6));
}

TEST(Embedding, NamesATokenOutsideTheVocabulary) {
  const at::Tensor tokens = at::tensor({2, 300}, at::kLong), weight = at::randn({256, 3});
  EXPECT_EQ(tests::thrown_by([&] { model::embedding(tokens, weight, -1); }),
            "error[input] embedding: token 300 is outside the vocabulary of 256\n"
            "  hint: use a token file and a model of the same tokenizer");
}

TEST(RmsNorm, BeginsWithZerosWhereItMultipliesByOnePlusTheWeight) {
  RmsNorm norm(12, 1e-6, at::TensorOptions().dtype(at::kFloat), RmsNorm::Scale::one_plus_weight);
  EXPECT_EQ(norm.weight.abs().max().item<double>(), 0);
  EXPECT_EQ(norm.slots()[0].init.kind, Init::Kind::zeros);
  const at::Tensor x = at::randn({5, 12});
  EXPECT_TRUE(at::equal(norm.call(x, {}), model::rms_norm_plus_one(x, norm.weight, 1e-6)));
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

}  // namespace
}  // namespace heddle
