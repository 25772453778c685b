// Measured idle times of every schedule, with actions of equal length, equal those of the simulator.
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>
#include <thread>

#include "heddle/nn/weight_gradients.h"
#include "heddle/train/step.h"
#include "lib/run/trace/measured.h"
#include "plugins/pipelines.h"
#include "tests/main/with_all.h"
#include "tests/quiet.h"
#include "tests/toy_unit.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("Of/MeasuredIdle*");

// Time of a unit's F, I and W each; long compared with the host's work.
#ifdef __SANITIZE_ADDRESS__
constexpr auto kNap = std::chrono::milliseconds(20);
#else
constexpr auto kNap = std::chrono::milliseconds(4);
#endif
constexpr int kNaps = 12;  // microbatches
constexpr int kNapSteps = 6, kChances = 6;
constexpr double kIdleTolerance = 0.05;

void nap(int times) {
  std::this_thread::sleep_for(times * kNap);
}

// Adds its weight. Sleeps instead of computing, so that two cores are enough for any number of ranks.
struct Napping : torch::autograd::Function<Napping> {
  using Context = torch::autograd::AutogradContext;
  static at::Tensor forward(Context* context, const at::Tensor& input, const at::Tensor& weight,
                            int64_t queue) {
    context->saved_data["queue"] = queue;
    context->saved_data["weight"] = weight;
    nap(1);
    return input + weight.detach();
  }

  static Tensors backward(Context* context, Tensors gradients) {
    auto* queue = reinterpret_cast<WeightGradients*>(context->saved_data["queue"].toInt());
    if (queue == nullptr || !queue->defers()) {
      nap(2);
      return {gradients[0], gradients[0], at::Tensor()};
    }
    nap(1);
    const at::Tensor weight = context->saved_data["weight"].toTensor();
    queue->push({torch::autograd::impl::gradient_edge(weight)}, [gradient = gradients[0]] {
      nap(1);
      return WeightGradients::Gradients{gradient};
    });
    return {gradients[0], at::Tensor(), at::Tensor()};
  }
};

// Two units per rank: one stage of two, or two stages of one.
Training napping(const std::string& name, int ranks) {
  Training run;
  run.axes = {{"pp", ranks}, {"tp", 1}};
  run.make_schedule = [name] { return make_schedule(name); };
  run.make_units = [ranks](int) {
    Units units;
    for (int i = 0; i < 2 * ranks; ++i)
      units.push_back(unit_of(
          "unit" + std::to_string(i), at::ones({1}).set_requires_grad(true),
          [last = i + 1 == 2 * ranks](const at::Tensor& weight, const Tensors& in, const Batch& batch) {
            const at::Tensor input = in.empty() ? at::ones({1}).set_requires_grad(true) : in[0];
            const at::Tensor output =
                Napping::apply(input, weight, reinterpret_cast<int64_t>(batch.weight_gradients));
            return last ? output.sum() : output;
          }));
    return units;
  };
  const int each = make_schedule(name)->stages_per_rank().most == 1 ? 1 : 2;
  run.pipeline.overlap = true;
  run.pipeline.modules.emplace(ranks * each);
  for (int unit = 0; unit < 2 * ranks; ++unit)
    (*run.pipeline.modules)[unit * each / 2].push_back("unit" + std::to_string(unit));
  return run;
}

// Returns the shortest step after the first, which was disturbed the least.
MeasuredPipeline shortest_step(const Training& run, int ranks) {
  std::vector<std::vector<Recording>> recordings(ranks, std::vector<Recording>(kNapSteps));
  std::vector<int> rank_of_stage;
  ThreadWorld world(ranks, std::chrono::minutes(2));
  world.run([&](Rendezvous& rendezvous) {
    const DeviceMesh mesh = mesh::build(run.axes, rendezvous, "test: idle");
    Stages stages = build(run, mesh);
    Step step(stages, mesh, StepConfig{});
    Batch batch;
    batch.tokens = batch.labels = at::ones({kNaps, 1}, at::kLong);
    for (Recording& recording : recordings[rendezvous.rank()]) {
      step.record(&recording);
      step.run(std::vector<Batch>{batch}, 1e-3, 0);
    }
    if (rendezvous.rank() == 0) rank_of_stage = stages.pipeline().rank_of_stage;
  });
  MeasuredPipeline best;
  for (int at = 1; at < kNapSteps; ++at) {
    std::vector<std::vector<RanAction>> ranks_of_step;
    for (const auto& rank : recordings) ranks_of_step.push_back(rank[at].actions);
    MeasuredPipeline one = measure(ranks_of_step, rank_of_stage);
    if (at == 1 || one.length < best.length) best = std::move(one);
  }
  return best;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Returns the largest difference between a rank's measured and simulated idle share, for equal and for
// measured times.
double farthest(const MeasuredPipeline& got, const schedule::Simulation& want) {
  double most = got.idle.empty() ? 1 : 0;
  for (size_t rank = 0; rank < got.idle.size(); ++rank)
    most = std::max({most, std::abs(got.idle[rank] - want.idle[rank]),
                     std::abs(got.idle[rank] - got.simulated.idle[rank])});
  return most;
}

class MeasuredIdle : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Of, MeasuredIdle, ::testing::ValuesIn(kEverySchedule), name_of_schedule);

TEST_P(MeasuredIdle, EqualsTheSimulator) {
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    const Training run = napping(GetParam(), ranks);
    const int stages = static_cast<int>(run.pipeline.modules->size());
    const auto schedule = make_schedule(GetParam());
    const ScheduleTable table = schedule->plan(ranks, stages, kNaps);
    const auto placed = schedule::placement(*schedule, ranks, stages, "test");
    const schedule::Simulation want = schedule::simulate(table, placed);
    // A busy machine wakes sleeping threads late, so idle times are compared only on a quiet machine.
    MeasuredPipeline got = shortest_step(run, ranks);
    const int chances = machine_is_quiet() ? kChances : 1;
    for (int chance = 1; chance < chances && farthest(got, want) > kIdleTolerance; ++chance)
      got = shortest_step(run, ranks);
    std::printf("| %s | %d | %.1f %% | %.1f %% | %.1f %% |\n", GetParam(), ranks, 100 * mean(want.idle),
                100 * got.mean_idle(), 100 * got.mean_simulated_idle());
    EXPECT_EQ(got.table, table);  // the executed table is the planned one
    EXPECT_EQ(got.idle.size(), static_cast<size_t>(ranks));
    if (machine_is_quiet()) {
      EXPECT_LE(farthest(got, want), kIdleTolerance);
    }
  }
}

// Returns the mean time of a step of zb2p in milliseconds, without the first step.
double step_of_zb2p(int ranks, bool early) {
  Training run = napping("zb2p", ranks);
  run.pipeline.post_validation = early;
  double mean = 0;
  ThreadWorld world(ranks, std::chrono::minutes(2));
  world.run([&](Rendezvous& rendezvous) {
    Stages stages = build(run, mesh::build(run.axes, rendezvous, "test: idle"));
    StepConfig config;
    config.max_norm = std::nullopt;
    Step step(stages, mesh::build(run.axes, rendezvous, "test: step"), config);
    Batch batch;
    batch.tokens = batch.labels = at::ones({kNaps, 1}, at::kLong);
    auto begin = std::chrono::steady_clock::now();
    for (int at = 0; at < kNapSteps; ++at) {
      step.run(std::vector<Batch>{batch}, 1e-3, 0);
      if (at == 0) begin = std::chrono::steady_clock::now();
    }
    step.settle();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    if (rendezvous.rank() + 1 == ranks) mean = time.count() / (kNapSteps - 1);
  });
  return mean;
}

// A step takes 3 M actions of a rank instead of 3 M + R - 1. With 4 ranks at least a quarter of the
// difference must be visible. With 2 the difference is close to the clock's resolution, and is only printed.
TEST(MeasuredPostValidation, RemovesTheWaitAtTheEndOfAStep) {
  if (!machine_is_quiet()) GTEST_SKIP() << "compares times: HEDDLE_TEST_QUIET=1 on a quiet machine";
  for (const int ranks : {2, 4}) {
    const double saved = (ranks - 1.0) / (3 * kNaps + ranks - 1);
    const int chances = ranks == 4 ? kChances : 1;
    double waiting = 1, early = 1;
    for (int chance = 0; chance < chances && early > (1 - saved / 4) * waiting; ++chance) {
      waiting = step_of_zb2p(ranks, false);
      early = step_of_zb2p(ranks, true);
    }
    std::printf("| zb2p | %d | %.1f | %.1f | %.1f %% | %.1f %% |\n", ranks, waiting, early,
                100 * (1 - early / waiting), 100 * saved);
    if (ranks == 4) {
      EXPECT_LE(early, (1 - saved / 4) * waiting);
    }
  }
}

}  // namespace
}  // namespace heddle::tests
