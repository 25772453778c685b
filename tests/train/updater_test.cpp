// The updater around an optimizer: master weights, groups, skipped updates, undo.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "train/alone.h"

namespace heddle::tests {
namespace {

// bfloat16 shards with and without master weights.
TEST(Updater, TakesAnUpdateBackBitForBitAndMakesItAgain) {
  for (const bool master : {false, true}) {
    std::vector<Shard> shards = {parameter("w", at::randn({9}, at::kBFloat16)),
                                 parameter("v", at::randn({5}, at::kBFloat16))};
    StepConfig config;
    config.master_weights = master;
    Alone alone(all(shards), config);
    const auto step = [&](float divisor) {
      shards[0].tensor.mutable_grad() = at::full({9}, 0.5, at::kBFloat16);
      alone.update(0.1, 0.1, at::full({1}, divisor));
    };
    const auto all_of = [&] {
      std::vector<at::Tensor> out;
      for (const Shard& shard : shards) out.push_back(shard.tensor.detach().clone());
      for (const OptimizerState& state : alone.state())
        for (const StateTensor& one : state.tensors) out.push_back(one.tensor.clone());
      return out;
    };
    step(1);
    const auto before = all_of();
    EXPECT_EQ(before.size(), master ? 10u : 8u);
    shards[0].tensor.mutable_grad() = at::full({9}, 2.0, at::kBFloat16);
    alone.updater.keep(/*state=*/true, /*gradients=*/true);
    alone.update(0.1, 0.1, {});
    EXPECT_FALSE(at::equal(all_of()[0], before[0]));
    alone.updater.undo();
    const auto after = all_of();
    for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(after[i], before[i])) << i;
    EXPECT_EQ(shards[0].tensor.grad()[0].item<float>(), 2.0f);
    EXPECT_FALSE(shards[1].tensor.grad().defined());
  }
}

// Plain SGD. The updater must have applied the divisor and the skip flag already.
struct PlainDescent : IOptimizer {
  std::vector<TrainedShard> shards;
  void start(std::span<const TrainedShard> given, const DeviceMesh&) override {
    shards.assign(given.begin(), given.end());
  }
  void update(const OptimizerUpdate& by) override {
    EXPECT_FALSE(by.divisor.defined() || by.skip.defined());
    for (const TrainedShard& one : shards)
      if (const at::Tensor& gradient = one.shard->tensor.grad(); gradient.defined())
        one.weight.sub_(gradient.to(one.weight.scalar_type()), by.lr * one.lr_mult);
  }
};

TEST(Updater, DividesAndSkipsForAnOptimizerThatDoesNotAndKeepsItsMasterCopies) {
  std::vector<Shard> shards = {parameter("w", at::full({2}, 1.0, at::kBFloat16)),
                               parameter("v", at::full({2}, 1.0))};
  Alone alone(all(shards), StepConfig{});
  StepConfig config;
  config.master_weights = true;
  config.groups = {{"v", 10.0, 1.0}};
  PlainDescent descent;
  train::Updater updater(all(shards), alone.mesh, config, descent);
  const auto step = [&](float skip) {
    for (Shard& shard : shards)
      shard.tensor.mutable_grad() = at::full({2}, 2.0, shard.tensor.options().requires_grad(false));
    updater.update({1.0, 0, at::full({1}, 1024.0f), at::full({1}, skip)});
    for (Shard& shard : shards) EXPECT_FALSE(shard.tensor.grad().defined());
  };
  for (const float skip : {0.0f, 1.0f, 0.0f, 0.0f}) step(skip);
  EXPECT_EQ(shards[1].tensor[0].item<float>(), 1 - 30.0f / 512);
  const std::vector<OptimizerState> states = updater.state();
  ASSERT_EQ(states.size(), 1u);
  EXPECT_EQ(states[0].at("master")[0].item<float>(), 1 - 3.0f / 512);
  EXPECT_EQ(shards[0].tensor.to(at::kFloat)[0].item<float>(), 0.9921875f);  // rounded to bfloat16
}

TEST(Updater, RefusesGroupsAndMasterCopiesThatAHostsOptimizerDoesNotTake) {
  struct Host : IOptimizer {
    void update(const OptimizerUpdate&) override {}
  } host;
  std::vector<Shard> shards = {parameter("w", at::full({2}, 1.0, at::kBFloat16))};
  Alone alone(all(shards), StepConfig{});
  StepConfig masters, groups;
  masters.master_weights = true;
  groups.groups = {{"w", 2.0, 1.0}};
  for (const StepConfig& config : {masters, groups}) try {
      train::Updater updater(all(shards), alone.mesh, config, host);
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::config);
      EXPECT_EQ(error.message(), std::string("StepConfig::") +
                                     (config.groups.empty() ? "master_weights" : "groups") +
                                     " needs an optimizer that takes its shards from Step");
    }
}

}  // namespace
}  // namespace heddle::tests
