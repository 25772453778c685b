// Actions that a schedule overlaps: equal bits, one order of collectives on all ranks, and a shorter step.
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "heddle/train/step.h"
#include "plugins/pipelines.h"
#include "plugins/recording.h"
#include "tests/toy_unit.h"

namespace heddle::tests {
namespace {

using EventsOfRanks = std::vector<std::vector<std::string>>;

// Experts on two ranks and two stages of two, so that both the dispatcher and the shards wait for other
// ranks.
Training overlapped(bool overlaps, EventsOfRanks& events) {
  Training run = eight_experts("qwen2_moe");
  run.model.num_hidden_layers = 5;
  run.sequences = 48;
  run.steps = 3;
  run = on(std::move(run), "fsdp2 dp2 ep2 pp2(dualpipev)");
  run.pipeline.overlap = overlaps;
  run.events = &events;
  return run;
}

TEST(Overlapped, GivesTheSameBitsAndOneOrderOfCollectives) {
  for (const auto mode : {ActivationCheckpointing::none, ActivationCheckpointing::full}) {
    EventsOfRanks apart, together;
    Training run = overlapped(false, apart);
    run.checkpointing = mode;
    const Outcome want = train(run);
    run = overlapped(true, together);
    run.checkpointing = mode;
    expect_bit_equal(train(run), want);
    for (size_t rank = 0; rank < together.size(); ++rank) {
      EXPECT_NE(together[rank], apart[rank]) << "nothing was overlapped";
      std::sort(apart[rank].begin(), apart[rank].end());
      std::vector<std::string> sorted = together[rank];
      std::sort(sorted.begin(), sorted.end());
      EXPECT_EQ(sorted, apart[rank]);
    }
    EXPECT_EQ(together[0], together[1]);  // the ranks of a stage
    EXPECT_EQ(together[2], together[3]);
  }
}

constexpr auto kWorkTime = std::chrono::milliseconds(4);    // per unit, in its forward and in its backward
constexpr auto kTravelTime = std::chrono::milliseconds(4);  // per exchange of a unit
constexpr int kOverlapSteps = 4, kRows = 12;

// A work that takes time, as over a network.
struct SlowWork : Work {
  SlowWork(std::unique_ptr<Work> work, std::chrono::steady_clock::time_point until)
      : inner(std::move(work)), end(until) {}
  void wait() override {
    inner->wait();
    std::this_thread::sleep_until(end);
  }
  std::unique_ptr<Work> inner;
  std::chrono::steady_clock::time_point end;
};

struct SlowCommunicator : mesh::WrappedCommunicator {
  using WrappedCommunicator::WrappedCommunicator;
  std::unique_ptr<Work> run(const mesh::GroupCall& call, Post post) override {
    if (call.peer >= 0) return post();
    return std::make_unique<SlowWork>(post(), std::chrono::steady_clock::now() + kTravelTime);
  }
};

struct SlowRendezvous : RecordingRendezvous {
  explicit SlowRendezvous(Rendezvous& rendezvous) : RecordingRendezvous(rendezvous, nullptr) {}
  std::unique_ptr<Communicator> group(const std::string& name, std::span<const int> ranks) override {
    return std::make_unique<SlowCommunicator>(RecordingRendezvous::group(name, ranks));
  }
};

void work_and_exchange(Communicator& ranks) {
  std::this_thread::sleep_for(kWorkTime);
  ranks.all_reduce(at::zeros({1}))->wait();
}

// Adds its weight. Sleeps instead of computing, and exchanges over tp.
struct Exchanging : torch::autograd::Function<Exchanging> {
  static at::Tensor forward(torch::autograd::AutogradContext* saved, const at::Tensor& input,
                            const at::Tensor& weight, int64_t ranks) {
    saved->saved_data["ranks"] = ranks;
    work_and_exchange(*reinterpret_cast<Communicator*>(ranks));
    return input + weight.detach();
  }
  static Tensors backward(torch::autograd::AutogradContext* saved, Tensors gradients) {
    work_and_exchange(*reinterpret_cast<Communicator*>(saved->saved_data["ranks"].toInt()));
    return {gradients[0], gradients[0], at::Tensor()};
  }
};

std::unique_ptr<Unit> exchanging_unit(int index, Communicator& ranks) {
  return unit_of("unit" + std::to_string(index), at::ones({1}).set_requires_grad(true),
                 [index, &ranks](const at::Tensor& weight, const Tensors& in, const Batch&) {
                   const at::Tensor input = in.empty() ? at::ones({1}).set_requires_grad(true) : in[0];
                   const at::Tensor output =
                       Exchanging::apply(input, weight, reinterpret_cast<int64_t>(&ranks));
                   return index == 3 ? output.sum() : output;
                 });
}

struct Shortest {
  double milliseconds = 0;  // of a step after the first
  std::vector<RanAction> actions;
};

// Measures rank 0 of two ranks of two stages.
Shortest step_of_dualpipev(bool overlaps) {
  Shortest least;
  ThreadWorld world(2, std::chrono::minutes(2));
  world.run([&](Rendezvous& rendezvous) {
    SlowRendezvous slow(rendezvous);
    Training run;
    run.axes = {{"pp", 2}, {"tp", 1}};
    const DeviceMesh mesh = mesh::build(run.axes, slow, "test: overlap");
    run.make_schedule = [] { return make_schedule("dualpipev"); };
    run.make_units = [&](int) {
      Units units;
      for (int i = 0; i < 4; ++i) units.push_back(exchanging_unit(i, mesh.group("tp")));
      return units;
    };
    run.pipeline.modules = {{"unit0"}, {"unit1"}, {"unit2"}, {"unit3"}};
    run.pipeline.overlap = overlaps;
    Stages stages = build(run, mesh);
    Step step(stages, mesh, StepConfig{});
    Batch batch;
    batch.tokens = batch.labels = at::ones({kRows, 1}, at::kLong);
    for (int at = 0; at < kOverlapSteps; ++at) {
      Recording recording;
      step.record(&recording);
      const auto begin = std::chrono::steady_clock::now();
      step.run(std::vector<Batch>{batch}, 1e-3, 0);
      const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
      if (rendezvous.rank() == 0 && at > 0 && (at == 1 || time.count() < least.milliseconds))
        least = {time.count(), recording.actions};
    }
  });
  return least;
}

// A unit works for 4 ms and waits for 4 ms. While a forward waits, the backward works.
TEST(Overlapped, ComputesOneActionWhileTheOtherWaits) {
  const Shortest apart = step_of_dualpipev(false), together = step_of_dualpipev(true);
  std::printf("| dualpipev | %.1f ms | %.1f ms | %.2f |\n", apart.milliseconds, together.milliseconds,
              together.milliseconds / apart.milliseconds);
  int pairs = 0;
  for (const RanAction& ran : together.actions) {
    if (!ran.overlapped || !ran.action.overlaps_next) continue;
    ++pairs;
    EXPECT_GE(ran.away, kWorkTime) << schedule::name_of(ran.action);
  }
  EXPECT_GE(pairs, kRows / 2);
  for (const RanAction& ran : apart.actions) EXPECT_FALSE(ran.overlapped);
}

}  // namespace
}  // namespace heddle::tests
