// Report of a step in a dry world, and a dry world that runs no step.
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/parallel/single.h"
#include "heddle/mesh/dry.h"
#include "heddle/schedule/schedule.h"
#include "heddle/train/step.h"
#include "tests/forwards_first.h"
#include "tests/thrown.h"
#include "tests/toy_unit.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

// Returns a unit that adds a parameter to its input. The last unit returns the sum of all elements.
std::unique_ptr<Unit> adds(const std::string& name, bool last) {
  return tests::unit_of(name, at::zeros({3}, at::device(at::kMeta).dtype(at::kFloat)).requires_grad_(),
                        [last](const at::Tensor& weight, const Tensors& in, const Batch& batch) {
                          const at::Tensor all = in.empty() ? weight * batch.tokens.numel() : in[0] + weight;
                          return last ? all.sum().view({1}) : all;
                        },
                        {Init::Kind::normal, 0.5});
}

Batch two_rows(c10::Device device) {
  Batch batch;
  batch.tokens = at::zeros({2, 5}, at::device(device).dtype(at::kLong));
  batch.labels = batch.tokens;
  return batch;
}

StepReport step_in(Rendezvous& world, const Batch& batch) {
  const std::vector<Axis> axes = {{"pp", world.world_size()}, {"tp", 1}};
  const DeviceMesh mesh = mesh::build(axes, world, "");
  Plan plan;
  plan.strategy = parallel::make_single();
  plan.schedule = std::make_shared<tests::ForwardsFirst>();
  Units units;
  for (int i = 0; i < world.world_size(); ++i)
    units.push_back(adds("layers." + std::to_string(i), i + 1 == world.world_size()));
  const ParameterSource unread = [](const Shard&) -> bool { throw std::logic_error("a value was read"); };
  Stages stages = parallel::build(std::move(units), plan, mesh, unread, 1);
  Step step(stages, mesh, {});
  EXPECT_FALSE(step.evaluate({&batch, 1}).loss.defined());
  return step.run({&batch, 1}, 1e-3, 0.1);
}

TEST(DryWorld, ReportsNothingForAStep) {
  for (const int rank : {0, 1, 2})
    for (const c10::DeviceType device : {at::kCPU, at::kMeta}) {
      DryRank world(rank, 3);
      const StepReport report = step_in(world, two_rows(device));
      EXPECT_FALSE(report.loss.defined());
      EXPECT_FALSE(report.grad_norm.defined());
      EXPECT_EQ(report.label_tokens, 0);
      EXPECT_FALSE(report.skipped());
      EXPECT_EQ(report.side_values.layout, nullptr);
    }
}

TEST(DryWorld, RefusesAHeaderWithoutSteps) {
  DryRendezvous world(1, 2);
  const std::string error = tests::thrown_by([&] {
    const std::vector<Axis> axes = {{"pp", 2}, {"tp", 1}};
    const DeviceMesh mesh = mesh::build(axes, world, "");
    Plan plan;
    plan.strategy = parallel::make_single();
    plan.schedule = std::make_shared<tests::ForwardsFirst>();
    Units units;
    for (const bool last : {false, true}) units.push_back(adds(last ? "layers.1" : "layers.0", last));
    Stages stages = parallel::build(std::move(units), plan, mesh, {}, 1);
    const Batch batch = two_rows(at::kCPU);
    Step(stages, mesh, {}).run({&batch, 1}, 1e-3, 0.1);
  });
  EXPECT_THAT(error, HasSubstr("no header came from stage 0: this world is dry"));
  EXPECT_THAT(error, HasSubstr("take steps in a world of heddle::DryRank, on meta tensors"));
}

}  // namespace
}  // namespace heddle
