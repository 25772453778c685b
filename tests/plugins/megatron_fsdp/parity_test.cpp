// Training results of megatron_fsdp and megatron beyond the settings of together/pairwise_test.cpp and the
// tests of together/every_strategy_test.cpp.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "plugins/megatron_runs.h"

namespace heddle::tests {
namespace {

// Two ranks add two values, with any collective. If gradients are split, microbatches accumulate after the
// sum over ranks, not before.
TEST(MegatronFsdp, GivesTheSameGradientBitsForEverySplit) {
  for (const int microbatches : {1, 3}) {
    const auto gradients_of = [&](int strategy) {
      Training run = mfsdp(2, zero(strategy));
      run.microbatches = microbatches;
      return gradients(run);
    };
    const auto whole = gradients_of(0), split = gradients_of(3), first = gradients_of(1),
               second = gradients_of(2);
    ASSERT_GT(whole.size(), 20u);
    for (const auto& [name, tensor] : whole) {
      EXPECT_TRUE(at::equal(first.at(name), tensor)) << name;
      EXPECT_TRUE(at::equal(second.at(name), split.at(name))) << name;
      EXPECT_TRUE(microbatches != 1 || at::equal(split.at(name), tensor)) << name;
    }
    expect_same(split, whole);
  }
}

TEST(MegatronFsdp, TrainsParametersOfTwoDtypesAndWithoutDims) {
  const auto make = [](int) {
    Toy real{.meta = false};
    Units units = toy_units(real);
    for (size_t i = 1; i < 4; ++i) {
      at::Tensor& scale = toy_at(units, i).own[2].tensor;
      scale = scale.detach().to(at::kDouble).squeeze().set_requires_grad(true);
    }
    return units;
  };
  Training whole = toy("single", {});
  whole.make_units = make;
  const Outcome want = train(whole);
  for (const int ranks : {1, 2, 3})
    for (int strategy = 0; strategy <= 3; ++strategy) {
      Training run = toy_like(mfsdp(ranks, zero(strategy)));
      run.make_units = make;
      expect_close(train(run), want);
    }
}

// Fields that need replicas.
TEST(Megatron, EqualsSingleIfReplicasSplitTheOptimizer) {
  Training whole = llama_alone();
  whole.steps = 6;
  const Outcome want = train(whole);
  const std::string instances = kFlat + "num_distributed_optimizer_instances: 2\n",
                    outer = fsdp("optim_grads_params", "outer_dp_sharding_strategy: optim\n");
  for (const auto& [section, shards_each] : std::vector<std::pair<std::string, int>>{
           {instances, 1}, {instances, 2}, {outer, 2}, {outer + "calculate_per_token_loss: true", 2}})
    for (const int microbatches : {1, 3}) {
      SCOPED_TRACE(section + " on 2 x " + std::to_string(shards_each));
      Training run = megatron(shards_each, section, 2);
      run.steps = 6;
      run.microbatches = microbatches;
      expect_close(train(run), want);
    }
}

// On one stage: input gradients of two microbatches, then the weight gradients of both.
TEST(Megatron, AcceptsWeightGradientsInAnyOrder) {
  for (const std::string& section :
       {std::string("calculate_per_token_loss: true"), kFlat + "calculate_per_token_loss: true",
        fsdp("optim_grads_params", "overlap_grad_reduce: true\ncalculate_per_token_loss: true")})
    for (const char* order : {"F0 F1 I0 I1 W0 W1", "F0 I0 F1 W0 B1", "F0 B0 F1 I1 W1"}) {
      SCOPED_TRACE(section + ", " + order);
      Training whole = llama_alone();
      whole.microbatches = 4;
      whole.order = "F0 B0 F1 B1 F2 B2 F3 B3";
      Training run = megatron(2, section);
      run.microbatches = 2;
      run.order = order;
      expect_same(gradients(run), gradients(whole));
    }
}

// Values that bypass the outputs of units: no output announces the gradients of "embed", and the gradient of
// layer0's `extra` arrives before its unit's output is reached.
TEST(MegatronFsdp, AcceptsGradientsThatArriveBeforeTheirBuffers) {
  const auto make = [](int) {
    Units units = toy_units({});
    const auto rows = std::make_shared<at::Tensor>(), row = std::make_shared<at::Tensor>();
    const auto embed = toy_at(units, 0).body(), layer = toy_at(units, 1).body();
    const auto replace = [&](size_t at, const char* name, const ToyUnit::Body& body) {
      units[at] = std::make_unique<ToyUnit>(name, toy_at(units, at).own, body);
    };
    replace(0, "embed", [=](ToyUnit& unit, Tensors inputs, const Batch& batch) -> Tensors {
      *rows = embed(unit, std::move(inputs), batch)[0];
      return {rows->detach()};
    });
    replace(1, "layer0", [=](ToyUnit& unit, Tensors, Batch batch) {
      batch.extra = at::zeros({1});
      Tensors out = layer(unit, {*rows}, batch);
      *row = unit.own[3].tensor * 2;
      return out;
    });
    replace(2, "layer1", [=](ToyUnit& unit, Tensors inputs, const Batch& batch) -> Tensors {
      return {layer(unit, std::move(inputs), batch)[0] + *row};
    });
    return units;
  };
  Training whole = toy("single", {});
  whole.make_units = make;
  const Outcome want = train(whole);
  for (const int ranks : {1, 2, 3})
    for (int strategy = 0; strategy <= 3; ++strategy) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, zero " + std::to_string(strategy));
      Training run = toy_like(mfsdp(ranks, zero(strategy)));
      run.make_units = make, run.microbatches = 2;
      expect_close(train(run), want);
    }
}

}  // namespace
}  // namespace heddle::tests
