// AdamW compared with its formula in float64: groups, master weights, parameters without gradients.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "heddle/base/error.h"
#include "lib/train/optimizer/norm.h"
#include "tests/thrown.h"
#include "train/alone.h"

namespace heddle {
namespace {

using tests::all;
using tests::Alone;
using tests::parameter;

struct Formula {  // AdamW in float64, written from the paper
  at::Tensor weight, average, square;
  int64_t steps = 0;
  explicit Formula(const at::Tensor& start)
      : weight(start.detach().to(at::kDouble).clone()), average(weight * 0), square(weight * 0) {}
  void update(const at::Tensor& gradient, const AdamWConfig& config, double lr, double decay) {
    const at::Tensor g = gradient.to(at::kDouble) + (config.decoupled ? 0 : decay) * weight;
    ++steps;
    if (config.decoupled) weight = weight * (1 - lr * decay);
    average = average * config.beta1 + g * (1 - config.beta1);
    square = square * config.beta2 + g * g * (1 - config.beta2);
    const at::Tensor m = average / (1 - std::pow(config.beta1, steps));
    const at::Tensor v = square / (1 - std::pow(config.beta2, steps));
    weight = weight - lr * m / (v.sqrt() + config.eps);
  }
};

void expect_close(const Shard& shard, const Formula& formula, double tolerance = 1e-6) {
  EXPECT_TRUE(at::allclose(shard.tensor.detach().to(at::kDouble), formula.weight, tolerance, tolerance))
      << shard.name;
}

TEST(AdamW, FollowsItsFormulaWithGroupsAndADivisor) {
  std::vector<Shard> shards = {parameter("a.weight", at::randn({5, 3})), parameter("a.bias", at::randn({3}))};
  std::vector<Formula> formulas = {Formula(shards[0].tensor), Formula(shards[1].tensor)};
  StepConfig config;
  config.groups = {{"bias$", 0.5, 0.0}};
  Alone optimizer(all(shards), config);
  for (int step = 0; step < 4; ++step) {
    for (size_t i = 0; i < shards.size(); ++i) {
      const at::Tensor gradient = at::randn(shards[i].tensor.sizes());
      shards[i].tensor.mutable_grad() = gradient.clone();
      formulas[i].update(gradient / 2, config.optimizer, i == 1 ? 0.005 : 0.01, i == 1 ? 0.0 : 0.1);
    }
    optimizer.update(0.01, 0.1, at::full({1}, 2.0f));
    EXPECT_FALSE(shards[0].tensor.grad().defined());
    expect_close(shards[0], formulas[0]);
    expect_close(shards[1], formulas[1]);
  }
}

// float32 uses heddle's kernel, float64 uses ATen's.
TEST(AdamW, AddsTheDecayToTheGradientWithoutDecoupling) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor start = at::randn({70}, dtype);
    std::vector<Shard> shards = {parameter("a", start.clone())};
    Formula formula(start);
    StepConfig config;
    config.optimizer.decoupled = false;
    Alone optimizer(all(shards), config);
    for (int step = 0; step < 5; ++step) {
      const at::Tensor gradient = at::randn({70}, dtype);
      shards[0].tensor.mutable_grad() = gradient.clone();
      formula.update(gradient / 2, config.optimizer, 0.01, 0.3);
      optimizer.update(0.01, 0.3, at::full({1}, 2.0f));
    }
    expect_close(shards[0], formula);
  }
}

TEST(AdamW, EqualsAdamBitForBitWithoutDecay) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor start = at::randn({70}, dtype);
    std::vector<at::Tensor> ends;
    for (const bool decoupled : {true, false}) {
      std::vector<Shard> shards = {parameter("a", start.clone())};
      StepConfig config;
      config.optimizer.decoupled = decoupled;
      Alone optimizer(all(shards), config);
      for (int step = 1; step <= 4; ++step) {
        shards[0].tensor.mutable_grad() = start / step;
        optimizer.update(0.01, 0.0, at::full({1}, 2.0f));
      }
      ends.push_back(shards[0].tensor.detach());
    }
    EXPECT_FALSE(at::equal(ends[0], start));
    EXPECT_TRUE(at::equal(ends[0], ends[1])) << dtype;
  }
}

// On a device, the kernel reads `skip`, and the host does not see the norm.
TEST(AdamW, ChangesNothingWhereSkipIsOne) {
  const StepConfig config;
  const auto after = [&](const std::vector<float>& skips, bool second_has_gradients) {
    std::vector<Shard> shards = {parameter("a", at::full({40}, 0.25f)), parameter("b", at::full({3}, 1.5f))};
    Alone optimizer(all(shards), config);
    for (const float skip : skips) {
      shards[0].tensor.mutable_grad() = at::full({40}, skip == 1 ? NAN : 0.5f);
      if (second_has_gradients) shards[1].tensor.mutable_grad() = at::full({3}, 2.0f);
      optimizer.update(0.01, 0.1, at::full({1}, skip == 1 ? NAN : 1.0f), at::full({1}, skip));
      EXPECT_FALSE(shards[0].tensor.grad().defined());
    }
    std::vector<at::Tensor> out;
    for (const OptimizerState& state : optimizer.state())
      for (const at::Tensor& tensor :
           {state.shard->tensor, state.at("exp_avg"), state.at("exp_avg_sq"), state.at("step")})
        out.push_back(tensor.detach().clone());
    return out;
  };
  for (const bool both : {true, false}) {
    const auto want = after({0, 0}, both), got = after({0, 1, 1, 0}, both);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::equal(got[i], want[i])) << i;
    EXPECT_EQ(want[3].item<float>(), 2.0f);
  }
}

// Tests the CPU kernel with sizes that are not multiples of the vector width.
TEST(AdamW, FollowsItsFormulaForAnySizeAndThreadsAndLeavesTheGradient) {
  const int before = at::get_num_threads();
  StepConfig config;
  config.optimizer.beta2 = 0.9999;  // in float32, 1 - beta2 has a relative error of 2e-4
  for (const int64_t count : {1, 17, 70001}) {
    const at::Tensor start = at::randn({count}), gradient = at::randn({count}), kept = gradient.clone();
    std::vector<at::Tensor> ends;
    for (const int threads : {1, 3}) {
      at::set_num_threads(threads);
      std::vector<Shard> shards = {parameter("a", start.clone())};
      Formula formula(start);
      Alone optimizer(all(shards), config);
      for (int step = 0; step < 3; ++step) {
        shards[0].tensor.mutable_grad() = gradient;
        formula.update(gradient / 4, config.optimizer, 0.01, 0.1);
        optimizer.update(0.01, 0.1, at::full({1}, 4.0f));
      }
      expect_close(shards[0], formula);
      ends.push_back(shards[0].tensor.detach());
    }
    EXPECT_TRUE(at::equal(ends[0], ends[1])) << count;
    EXPECT_TRUE(at::equal(gradient, kept));
  }
  at::set_num_threads(before);
}

TEST(AdamW, CountsItsChangeOfTheWeights) {
  std::vector<Shard> shards = {parameter("a", at::randn({4}))};
  Alone optimizer(all(shards), StepConfig{});
  const auto before = shards[0].tensor._version();
  shards[0].tensor.mutable_grad() = at::randn({4});
  optimizer.update(0.01, 0.1, at::full({1}, 1.0f));
  EXPECT_GT(shards[0].tensor._version(), before);
}

TEST(AdamW, LeavesAParameterWithoutAGradientAlone) {
  std::vector<Shard> shards = {parameter("a", at::randn({4})), parameter("b", at::randn({4}))};
  const at::Tensor before = shards[1].tensor.detach().clone();
  Formula a(shards[0].tensor), b(shards[1].tensor);
  const StepConfig config;
  Alone optimizer(all(shards), config);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor gradient = at::randn({4});
    shards[0].tensor.mutable_grad() = gradient.clone();
    a.update(gradient, config.optimizer, 0.01, 0.1);
    if (step == 2) {
      shards[1].tensor.mutable_grad() = gradient.clone();
      b.update(gradient, config.optimizer, 0.01, 0.1);
    }
    optimizer.update(0.01, 0.1, at::Tensor());
    if (step < 2) {
      EXPECT_TRUE(at::equal(shards[1].tensor.detach(), before));
    }
  }
  expect_close(shards[0], a);
  expect_close(shards[1], b);
}

TEST(AdamW, KeepsMasterWeightsWhereTheyAreAskedFor) {
  // An update of 1e-5 is below bfloat16's resolution at 1, so every update is lost without master weights.
  const auto train = [](bool master) {
    std::vector<Shard> shards = {parameter("w", at::full({2}, 1.0, at::kBFloat16))};
    StepConfig config;
    config.master_weights = master;
    Alone optimizer(all(shards), config);
    for (int step = 0; step < 1000; ++step) {
      shards[0].tensor.mutable_grad() = at::full({2}, 1.0, at::kBFloat16);
      optimizer.update(1e-5, 0.0, at::Tensor());
    }
    return shards[0].tensor.detach().to(at::kFloat)[0].item<float>();
  };
  EXPECT_EQ(train(false), 1.0f);
  EXPECT_NEAR(train(true), 0.99f, 0.003f);
}

TEST(AdamW, RefusesAPatternThatIsNoRegularExpression) {
  std::vector<Shard> shards = {parameter("w", at::randn({2}))};
  StepConfig config;
  config.groups = {{"(", 1.0, 1.0}};
  EXPECT_THAT(tests::thrown_by([&] { Alone optimizer(all(shards), config); }),
              ::testing::AllOf(::testing::HasSubstr("optimizer.param_group_overrides"),
                               ::testing::HasSubstr("not a regular expression: '('")));
}

TEST(Norm, SquaresOfLargeGradientsDoNotOverflow) {
  const at::Tensor gradient = at::full({2}, 6e31f);
  const double norm = std::sqrt(train::sum_of_squares(gradient));
  EXPECT_NEAR(norm / (6e31 * std::sqrt(2.0)), 1.0, 1e-6);
  const at::Tensor divisor = train::clip_divisor(at::full({1}, norm, at::kDouble), 0.3);
  EXPECT_LE((gradient / divisor).to(at::kDouble).norm().item<double>(), 0.3 * (1 + 1e-6));
}

TEST(Norm, IsTheSameForAnyLayoutAndDtype) {
  const at::Tensor gradient = at::randn({300, 401});
  const double wanted = gradient.to(at::kDouble).pow(2).sum().item<double>();
  EXPECT_NEAR(train::sum_of_squares(gradient) / wanted, 1.0, 1e-12);
  EXPECT_NEAR(train::sum_of_squares(gradient.t()) / wanted, 1.0, 1e-12);
  EXPECT_NEAR(train::sum_of_squares(gradient.to(at::kBFloat16)) / wanted, 1.0, 1e-2);
  EXPECT_EQ(train::sum_of_squares(gradient.narrow(0, 0, 0)), 0.0);
}

TEST(Norm, IsNotScaledUpWhenSmall) {
  EXPECT_EQ(train::clip_divisor(at::full({1}, 0.5, at::kDouble), 1.0).item<float>(), 1.0f);
  EXPECT_NEAR(train::clip_divisor(at::full({1}, 4.0, at::kDouble), 1.0).item<float>(), 4.0f, 1e-5);
}

}  // namespace
}  // namespace heddle
