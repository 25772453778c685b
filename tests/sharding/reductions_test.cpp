// Parameters of one stage that are reduced over different groups: sums and usage flags.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>

#include "heddle/sharding/flat_gradients.h"
#include "heddle/sharding/stage.h"
#include "heddle/transport/threads.h"
#include "tests/toy_unit.h"

namespace heddle::sharding {
namespace {

constexpr int64_t kElements = 4;

// A replicated parameter whose gradient is reduced over `groups`.
class WholeBucket final : public Bucket {
 public:
  WholeBucket(const ParameterSlot& slot, const Groups& groups) {
    const int64_t part = kElements / groups.shards;
    const at::Tensor held = at::full({part}, 2.0);
    Shard shard;
    shard.name = slot.name;
    shard.tensor = held.view({part}).set_requires_grad(true);
    parameter_ = {slot.name, *slot.tensor, {shard}};
    set_gradients(std::make_unique<FlatGradients>(std::vector<Parameter>{parameter_}, std::vector<int64_t>{0},
                                                  held, groups));
  }
  std::vector<Parameter> parameters() const override { return {parameter_}; }
  int64_t elements() const override { return kElements; }
  bool transient() const override { return false; }
  std::unique_ptr<Work> gather() override { return nullptr; }

 private:
  Parameter parameter_;
};

const Reduction kDense = {"dp", "dp_replicate", "dp_shard"};
const Reduction kInner = {"dp_shard", "", "dp_shard"};
const Reduction kAlone = {};

using OfEach = std::array<double, 3>;  // gradients of `dense`, `inner`, `alone`; -1: undefined

// Runs a step on a 2x2 mesh. Only ranks with used[rank] run backward.
std::array<OfEach, 4> gradients_of_step(std::array<bool, 4> used, bool each_microbatch) {
  std::array<OfEach, 4> out{};
  ThreadWorld::run(4, [&](Rendezvous& rendezvous) {
    const DeviceMesh mesh =
        mesh::build(std::vector<Axis>{{"dp_replicate", 2}, {"dp_shard", 2}}, rendezvous, "test: world");
    Units units;
    std::vector<std::unique_ptr<Bucket>> buckets;
    const Groups dense = groups_over(mesh, kDense);
    for (const auto& [name, groups] :
         {std::pair("dense", dense), std::pair("inner", groups_over(mesh, kInner)),
          std::pair("alone", groups_over(mesh, kAlone))}) {
      units.push_back(tests::unit_of(
          name, at::full({kElements}, 2.0).set_requires_grad(true),
          [](const at::Tensor& weight, const Tensors& in, const Batch&) { return in[0] * weight; }));
      buckets.push_back(std::make_unique<WholeBucket>(units.back()->parameters()[0], groups));
    }
    Policy policy;
    policy.reduce_each_microbatch = each_microbatch;
    ShardedStage stage(
        Model(std::move(units), std::move(buckets), std::vector(3, Reshard::after_forward), "mine"), policy,
        mesh, dense);
    for (const bool last : {false, true}) {
      if (last) stage.expect_last_backward();
      const at::Tensor loss = stage.forward({at::full({kElements}, 1.0)}, Batch())[0].sum();
      if (used[rendezvous.rank()]) loss.backward();
    }
    stage.finish_gradients();
    for (size_t i = 0; i < 3; ++i) {
      const at::Tensor gradient = stage.owned()[i].tensor.grad();
      out[rendezvous.rank()][i] = gradient.defined() ? gradient.select(0, 0).item<double>() : -1;
    }
  });
  return out;
}

// The derivative of w * 2 * 2 * x is 4, and there are two microbatches.
TEST(ShardingReductions, SumEachParameterOverItsOwnRanks) {
  using Ranks = std::array<OfEach, 4>;
  for (const bool each_microbatch : {false, true})
    EXPECT_EQ(gradients_of_step({true, true, true, true}, each_microbatch),
              (Ranks{OfEach{32, 16, 8}, {32, 16, 8}, {32, 16, 8}, {32, 16, 8}}));
  EXPECT_EQ(gradients_of_step({true, false, false, false}, false),
            (Ranks{OfEach{8, 8, 8}, {8, 8, -1}, {8, -1, -1}, {8, -1, -1}}));
  EXPECT_EQ(gradients_of_step({false, false, false, false}, false),
            (Ranks{OfEach{-1, -1, -1}, {-1, -1, -1}, {-1, -1, -1}, {-1, -1, -1}}));
}

}  // namespace
}  // namespace heddle::sharding
