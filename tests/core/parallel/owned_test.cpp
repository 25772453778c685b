// What core asks of the shards that a strategy owns, before the first step.
#include <ATen/ops/empty_like.h>
#include <gmock/gmock.h>

#include "heddle/mesh/threads.h"
#include "heddle/parallel/build.h"
#include "heddle/testing/strategy.h"
#include "tests/thrown.h"

namespace heddle::tests {
namespace {

// Owns every parameter whole, as tensors that require a gradient, or that do not.
class OwnsWhole : public ParallelStage {
 public:
  OwnsWhole(Units units, std::span<const Placed> placed, bool gradients) : units_(std::move(units)) {
    for (const auto& unit : units_)
      for (ParameterSlot& slot : unit->parameters()) {
        owned_.push_back(whole_shard(slot, placed));
        owned_.back().tensor =
            at::empty_like(*slot.tensor, at::TensorOptions(at::kCPU)).set_requires_grad(gradients);
      }
  }
  Tensors forward(Tensors inputs, const Batch&) override { return inputs; }
  void unshard() override {}
  void reshard() override {}
  void expect_last_backward() override {}
  void finish_gradients() override {}
  std::span<Shard> owned() override { return owned_; }
  void parameters_changed() override {}

 private:
  Units units_;
  std::vector<Shard> owned_;
};

class Strategy : public IStrategy {
 public:
  explicit Strategy(bool gradients) : gradients_(gradients) {}
  Needs needs() const override { return {}; }
  std::unique_ptr<ParallelStage> parallelize(Units units, const DeviceMesh&,
                                             std::span<const Placed> placed) override {
    return std::make_unique<OwnsWhole>(std::move(units), placed, gradients_);
  }

 private:
  bool gradients_;
};

std::string building(bool gradients) {
  return thrown_by([&] {
    ThreadWorld::run(1, [&](Rendezvous& meeting) {
      Plan plan;
      plan.strategy = std::make_unique<Strategy>(gradients);
      const std::vector<Axis> axes = {{"dp", 1}};
      parallel::build(testing::detail::small_units(), plan, mesh::build(axes, meeting, ""), {}, 42);
    });
  });
}

TEST(OwnedShards, OfTrainedParametersRequireGradientsOrWouldNotBeUpdated) {
  EXPECT_EQ(
      building(false),
      "error[plugin_failed] parallel: the strategy owns a shard of 'first.weight' that requires no gradient, "
      "so the optimizer would leave it as it is\n"
      "  hint: in parallelize(): shard.tensor.set_requires_grad(true) where the slot is trainable()");
  EXPECT_EQ(building(true), "");
}

}  // namespace
}  // namespace heddle::tests
