// One rank gets a gradient that is not finite: every rank skips that update, under every strategy and
// topology.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <limits>

#include "heddle/model/module_unit.h"
#include "plugins/pipelines.h"
#include "plugins/tensor_training.h"

namespace heddle::tests {
namespace {

constexpr int kBadStep = 2;
constexpr double kNoClipping = 1e300;

// A unit whose output's gradient is not finite in the bad step.
class BadGradient : public ModuleUnit {
 public:
  BadGradient(Unit& unit, int forwards_a_step, double value)
      : ModuleUnit(std::move(dynamic_cast<ModuleUnit&>(unit))),
        forwards_a_step_(forwards_a_step),
        value_(value) {}
  Tensors forward(Tensors inputs, const Batch& batch) override {
    Tensors out = ModuleUnit::forward(std::move(inputs), batch);
    if (out[0].requires_grad() && forwards_++ / forwards_a_step_ == kBadStep)
      out[0].register_hook([value = value_](const at::Tensor& gradient) { return gradient + value; });
    return out;
  }

 private:
  int forwards_a_step_, forwards_ = 0;
  double value_;
};

// The run with a bad gradient behind `unit` on `rank`, whose stage has it.
Training with_bad_gradient(Training run, int rank, size_t unit, double value) {
  int data_ranks = 1;
  for (const Axis& axis : run.axes)
    if (axis.name.starts_with("dp")) data_ranks *= axis.size;
  const int forwards = run.make_schedule ? 12 / data_ranks : run.microbatches;
  run.make_units = [=, model = run.model](int of) {
    Units units = make_units(model, at::TensorOptions().dtype(at::kFloat).device(at::kMeta));
    if (of == rank) units[unit] = std::make_unique<BadGradient>(*units[unit], forwards, value);
    return units;
  };
  run.steps = 6;
  return run;
}

Training one_rank_skipping() {
  Training run = four_heads();
  run.microbatches = 1;
  return run;
}

struct World {
  std::string name;
  Training run;
  int rank = 0;  // that gets the bad gradient
};

World world(const std::string& strategy, const std::string& section, std::vector<Axis> axes, int rank,
            const std::string& tensor = "") {
  World out{strategy + " " + section + " " + tensor, one_rank_skipping(), rank};
  out.run.strategy = strategy;
  out.run.section = section;
  out.run.axes = std::move(axes);
  if (!tensor.empty()) out.run.parallelizers = {{"tensor", tensor}};
  return out;
}

World in_stages(World world, int rank) {
  world.name += " in stages";
  world.rank = rank;
  world.run.pipeline.microbatch_size = 1;
  world.run.make_schedule = [] { return make_schedule("1f1b"); };
  return world;
}

std::vector<World> worlds() {
  std::vector<World> out = {
      world("ddp", "{}", {{"dp", 3}}, 2),
      world("ddp", "gradient_as_bucket_view: true", {{"dp", 2}}, 0),
      world("fsdp2", kFloat, shards(3), 1),
      world("fsdp2", kFloat, shards(2, 2), 3),
      world("megatron", "{}", shards(2), 1),
      world("megatron", "{use_distributed_optimizer: true, overlap_grad_reduce: true}", shards(2), 1),
      world("single", "{}", {{"pp", 1}, {"tp", 2}}, 1, "{}"),
      world("ddp", "{}", {{"dp", 2}, {"tp", 2}}, 2, kSequence),
      world("fsdp2", kFloat, {{"pp", 1}, {"dp_replicate", 1}, {"dp_shard", 2}, {"cp", 1}, {"tp", 2}}, 3,
            "{}"),
      in_stages(world("single", "{}", {{"pp", 2}}, 0), 0),
      in_stages(world("fsdp2", kFloat, {{"pp", 2}, {"dp_shard", 2}}, 0), 1),
      in_stages(world("ddp", "{}", {{"pp", 2}, {"dp", 2}, {"tp", 2}}, 0, kSequence), 3)};
  for (const char* zero : {"0", "1", "2", "3"})
    out.push_back(world("megatron_fsdp", "zero_dp_strategy: " + std::string(zero),
                        {{"dp", 2}, {"cp", 1}, {"tp", 1}}, 1));
  return out;
}

void expect_one_skipped(const Outcome& outcome) {
  for (int step = 0; step < 6; ++step) EXPECT_EQ(outcome.norms[step] == -1, step == kBadStep) << step;
}

TEST(SkippedUpdates, AreTheSameUnderEveryStrategyWhicheverRankHasTheBadGradient) {
  using Case = std::pair<double, double>;
  for (const auto& [value, max_norm] :
       std::vector<Case>{{std::numeric_limits<double>::infinity(), 1.0},
                         {std::numeric_limits<double>::quiet_NaN(), kNoClipping}}) {
    Training alone = with_bad_gradient(one_rank_skipping(), 0, 1, value);
    alone.max_norm = max_norm;
    const Outcome want = train(alone);
    expect_one_skipped(want);
    for (const World& world : worlds()) {
      SCOPED_TRACE(world.name + ", " + std::to_string(value));
      Training run = with_bad_gradient(world.run, world.rank, 1, value);
      run.max_norm = max_norm;
      const Outcome got = train(run);
      expect_one_skipped(got);
      expect_close(got, want);
    }
  }
}

// The last norm's weight is whole on both ranks of tp, and each computes its gradient alone.
TEST(SkippedUpdates, WhereOneOfTwoRanksWithTheSameParameterHasTheBadGradient) {
  for (const size_t unit : {0, 3}) {
    SCOPED_TRACE(unit);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const Outcome want = train(with_bad_gradient(one_rank_skipping(), 0, unit, nan));
    const World world = worlds()[6];
    const Outcome got = train(with_bad_gradient(world.run, 1, unit, nan));
    expect_one_skipped(got);
    expect_close(got, want);
  }
}

TEST(SkippedUpdates, ChangeNoBitOfWhatFollows) {
  const World world = worlds()[2];
  const Outcome once = train(with_bad_gradient(world.run, 0, 1, std::numeric_limits<double>::infinity()));
  expect_bit_equal(train(with_bad_gradient(world.run, 2, 0, std::numeric_limits<double>::quiet_NaN())), once);
}

}  // namespace
}  // namespace heddle::tests
