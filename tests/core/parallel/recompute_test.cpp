// A unit that is recomputed in the backward gives equal bits, and holds less memory in between.
#include "core/parallel/recompute.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "core/parallel/held_bytes.h"
#include "core/parallel/recompute_units.h"
#include "heddle/base/error.h"
#include "heddle/nn/weight_gradients.h"
#include "tests/llama_model.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using namespace heddle::tests;

std::unique_ptr<Unit> recomputed(std::unique_ptr<Unit> unit) {
  return parallel::recomputed(std::move(unit), Mode::full);
}

ModelConfig shape_of(const std::string& architecture) {
  ModelConfig shape = small_model();
  shape.qkv_bias = architecture == "qwen2";
  shape.qk_norm = architecture == "qwen3";
  return shape;
}

// Returns the units of a model with fixed values, recomputed or not.
Units model(const ModelConfig& shape, bool again) {
  return built_model(shape, again ? Mode::full : Mode::none);
}

TEST(Recompute, GivesTheBitsOfThePlainModel) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    SCOPED_TRACE(architecture);
    Units plain = model(shape_of(architecture), false), again = model(shape_of(architecture), true);
    for (int microbatch = 0; microbatch < 2; ++microbatch) {
      const at::Tensor want = loss_of(plain, tokens()), got = loss_of(again, tokens());
      EXPECT_TRUE(at::equal(got, want));
      want.backward();
      got.backward();
    }
    expect_equal(gradients_of(again), gradients_of(plain));
  }
}

TEST(Recompute, GivesTheBitsOfThePlainModelWhenTheBackwardIsSplit) {
  Units plain = model(shape_of("qwen2"), false), again = model(shape_of("qwen2"), true);
  WeightGradients one, two;
  Batch first = tokens(), second = tokens();
  second.tokens = second.tokens.flip({0});
  loss_of(plain, first).backward();
  loss_of(plain, second).backward();
  first.weight_gradients = &one;
  second.weight_gradients = &two;
  const at::Tensor loss1 = loss_of(again, first), loss2 = loss_of(again, second);
  one.defer();
  loss1.backward();
  two.defer();
  loss2.backward();
  one.drain();
  two.drain();
  expect_equal(gradients_of(again), gradients_of(plain));
}

TEST(Recompute, GivesTheBitsOfThePlainModelWithFrozenParameters) {
  Gradients results[2];
  for (const bool again : {false, true}) {
    at::manual_seed(11);
    Units units = make_units(shape_of("llama"), at::kFloat);
    for (const size_t frozen : {0u, 2u})  // the embedding, so that the next input needs no gradient; a layer
      for (const ParameterSlot& slot : units[frozen]->parameters()) slot.tensor->set_requires_grad(false);
    units[1]->parameters()[0].tensor->set_requires_grad(false);
    const Unit *first = units.front().get(), *last = units.back().get(), *layer = units[2].get();
    if (again) parallel::recompute(units, first, last, Mode::full);
    EXPECT_EQ(units[2].get(), layer);  // it has no trainable parameter
    loss_of(units, tokens()).backward();
    results[again] = gradients_of(units);
  }
  expect_equal(results[1], results[0]);
}

std::unique_ptr<ToyUnit> scaled_tanh() {
  return unit_of("scaled", at::full({3}, 0.5).set_requires_grad(true),
                 [](const at::Tensor& weight, const Tensors& in, const Batch& batch) {
                   return (weight * (in.empty() ? batch.extra : in[0])).tanh();
                 });
}

TEST(Recompute, TrainsAUnitWithoutAnyInput) {
  auto unit = recomputed(scaled_tanh());
  Batch batch;
  batch.extra = at::arange(3.0, at::kFloat);
  unit->forward({}, batch)[0].sum().backward();
  auto plain = scaled_tanh();
  plain->forward({}, batch)[0].sum().backward();
  expect_equal({unit->parameters()[0].tensor->grad()}, {plain->parameters()[0].tensor->grad()});
}

TEST(Recompute, RunsTheForwardOnceMoreOnlyWithGradients) {
  auto counted = scaled_tanh();
  ToyUnit* seen = counted.get();
  auto unit = recomputed(std::move(counted));
  const at::Tensor x = at::ones({3});
  {
    const at::NoGradGuard evaluation;
    EXPECT_FALSE(unit->forward({x}, {})[0].requires_grad());
  }
  EXPECT_EQ(seen->runs, 1);
  const at::Tensor y = unit->forward({x}, {})[0];
  EXPECT_EQ(seen->runs, 2);
  y.sum().backward();
  EXPECT_EQ(seen->runs, 3);
}

std::unique_ptr<Unit> drops(bool again) {
  auto unit = unit_of("drops", at::ones({64}).set_requires_grad(true),
                      [](const at::Tensor& weight, const Tensors& in, const Batch&) {
                        return at::dropout(in[0] * weight, 0.5, true);
                      });
  return again ? recomputed(std::move(unit)) : std::move(unit);
}

TEST(Recompute, DrawsTheSameRandomNumbersAndKeepsTheGenerator) {
  Gradients results[2];
  for (const bool again : {false, true}) {
    at::manual_seed(5);
    auto one = drops(again), two = drops(again);
    const at::Tensor x = at::ones({64}).set_requires_grad(true);
    two->forward(one->forward({x}, {}), {})[0].sum().backward();
    results[again] = {x.grad(), one->parameters()[0].tensor->grad(), two->parameters()[0].tensor->grad(),
                      at::rand({4})};
  }
  expect_equal(results[1], results[0]);
}

// Outputs: a result, the input itself, a view of the input, and integers.
std::unique_ptr<Unit> passes_on() {
  return unit_of("passes_on", at::full({2, 3}, 0.5).set_requires_grad(true),
                 [](const at::Tensor& weight, const Tensors& in, const Batch&) {
                   return Tensors{in[0] * weight, in[0], in[0].view({3, 2}), at::arange(3), at::Tensor()};
                 });
}

TEST(Recompute, PassesThroughInputsViewsAndIntegers) {
  Gradients results[2];
  for (const bool again : {false, true}) {
    std::unique_ptr<Unit> unit = passes_on();
    if (again) unit = recomputed(std::move(unit));
    const at::Tensor x = at::arange(6.0, at::kFloat).view({2, 3}).set_requires_grad(true);
    const Tensors out = unit->forward({x, at::Tensor()}, {});
    EXPECT_EQ(out[3].scalar_type(), at::kLong);
    EXPECT_FALSE(out[4].defined());
    (out[0].sum() + (out[1] * 2).sum() + out[2].tanh().sum()).backward();
    results[again] = {x.grad(), unit->parameters()[0].tensor->grad()};
  }
  expect_equal(results[1], results[0]);
}

TEST(Recompute, RecomputesUnderTheAutocastOfTheForward) {
  Gradients results[2];
  for (const bool again : {false, true}) {
    std::unique_ptr<Unit> unit = unit_of(
        "linear", at::linspace(0.1, 0.9, 12).view({3, 4}).set_requires_grad(true),
        [](const at::Tensor& weight, const Tensors& in, const Batch&) { return at::linear(in[0], weight); });
    if (again) unit = recomputed(std::move(unit));
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::Tensor y = unit->forward({at::linspace(-1, 1, 8).view({2, 4})}, {})[0];
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    y.sum().backward();
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    results[again] = {unit->parameters()[0].tensor->grad()};
  }
  expect_equal(results[1], results[0]);
}

TEST(Recompute, RefusesASecondDerivative) {
  auto unit = recomputed(scaled_tanh());
  const at::Tensor x = at::ones({3}).set_requires_grad(true), y = unit->forward({x}, {})[0].sum();
  EXPECT_THAT(
      tests::thrown_by([&] { torch::autograd::grad({y}, {x}, {}, true, true); }),
      ::testing::AllOf(::testing::HasSubstr("a unit under activation checkpointing has no second derivative"),
                       ::testing::HasSubstr("call backward without create_graph")));
}

struct Held {
  int64_t between, peak;  // between forward and backward; maximum
};

Held held_by(const ModelConfig& shape, bool again) {
  Units units = model(shape, again);
  const Batch batch = tokens();
  at::Tensor loss;
  const int64_t between = held_while([&] { loss = loss_of(units, batch); }).now;
  // The parameters' gradients are equal in both cases.
  return {between, between + held_while([&] { loss.backward(); }).peak};
}

TEST(Recompute, HoldsOnlyTheInputsOfLayers) {
  ModelConfig shape = shape_of("llama");
  shape.num_hidden_layers = 8;
  const Held plain = held_by(shape, false), again = held_by(shape, true);
  const int64_t input = 24 * shape.hidden_size * 4, layers = 8;
  ModelConfig deeper = shape;
  deeper.num_hidden_layers = 9;
  const int64_t one_layer = held_by(deeper, true).between - again.between;
  EXPECT_GE(one_layer, input);
  EXPECT_LE(one_layer, input + 128);  // the rest is overhead of the allocator
  EXPECT_LT(again.between, plain.between - 7 * layers * input);
  EXPECT_LT(again.peak, plain.peak - 6 * layers * input);
}

}  // namespace
}  // namespace heddle
