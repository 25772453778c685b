// Memory line of a run: bytes that a rank holds under each strategy.
#include <gtest/gtest.h>

#include <mutex>

#include "lib/cost/model_size.h"
#include "plugins/megatron_runs.h"
#include "plugins/pipelines.h"

namespace heddle::tests {
namespace {

// Means over the ranks, relative to the bytes of the model.
struct Parts {
  double held = 0, gradients = 0, optimizer = 0, largest_unit = 0;
};

Parts measured_parts(Training run) {
  std::vector<WholeModel> models(8);
  run.make_units = [&models, model = run.model](int rank) {
    Units units = heddle::make_units(model, at::TensorOptions().dtype(at::kFloat).device(at::kMeta));
    models[rank] = whole_model(units);
    return units;
  };
  Parts parts;
  std::mutex lock;
  on_ranks(run, [&](Stages& stages, const DeviceMesh& mesh) {
    const WholeModel& own = models[mesh.rank("world")];
    const auto adamw = train::make_adamw({});
    const auto states = states_of(stages, mesh, StepConfig{}, *adamw);
    const ModelSize size = size_of(own, stages, states, run.max_norm);
    const double whole = 4.0 * static_cast<double>(own.parameters) * mesh.size("world");
    const std::lock_guard guard(lock);
    parts.held += size.held / whole;
    parts.gradients += size.gradients / whole;
    parts.optimizer += size.optimizer / whole;
    parts.largest_unit += size.largest_unit / whole;
  });
  return parts;
}

Training without_shards() {
  Training run = llama_alone();
  run.axes = {{"dp", 1}};
  return run;
}

// Parts are aligned. Prefetched units and padding of a small model add to the held bytes.
void expect_parts(const Parts& got, double held, double gradients, double optimizer, double more = 0.3) {
  EXPECT_GE(got.held, held - 0.01);
  EXPECT_LE(got.held, held + more);
  EXPECT_NEAR(got.gradients, gradients, 0.1);
  EXPECT_NEAR(got.optimizer, optimizer, 0.2);
}

TEST(ModelSize, CountsWholeState) {
  expect_parts(measured_parts(without_shards()), 1, 1, 2);
  Training undone = without_shards();
  undone.axes = {{"pp", 2}, {"tp", 1}};
  undone.make_schedule = [] { return make_schedule("zb2p"); };
  undone.pipeline.post_validation = true;
  expect_parts(measured_parts(undone), 0.5, 0.5, 3);
  Training run = without_shards();
  run.strategy = "ddp", run.axes = {{"dp", 2}};
  const Parts parts = measured_parts(run);
  expect_parts(parts, 1, 1, 2);
  EXPECT_EQ(parts.largest_unit, 0);
}

TEST(ModelSize, CountsWholeParametersAndGradientsIfOnlyTheOptimizerIsSplit) {
  expect_parts(measured_parts(megatron(2, "use_distributed_optimizer: true")), 1, 1, 1);
}

TEST(ModelSize, CountsShardsAndTheLargestUnitThatIsGathered) {
  for (Training run : {mfsdp(2, zero(3)), llama_alone()}) {
    if (run.strategy == "single") run.strategy = "fsdp2", run.section = kFloat, run.axes = shards(2);
    const Parts parts = measured_parts(run);
    expect_parts(parts, 0.5, 0.5, 1, run.strategy == "fsdp2" ? 0.3 : 1);  // megatron_fsdp pads rows
    EXPECT_GT(parts.largest_unit, 0.1);
    EXPECT_LT(parts.largest_unit, 0.5);
  }
}

TEST(ModelSize, CountsNoGradientsOfFrozenParameters) {
  Training run = without_shards();
  run.frozen = {"model.embed_tokens.weight", "lm_head.weight"};
  const Parts parts = measured_parts(run), all = measured_parts(without_shards());
  EXPECT_LT(parts.gradients, all.gradients - 0.1);
  EXPECT_NEAR(parts.optimizer, 2 * parts.gradients, 0.01);
  EXPECT_NEAR(parts.held, all.held, 0.01);
}

}  // namespace
}  // namespace heddle::tests
