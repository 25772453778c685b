// Host time of an action of the pipeline's runner: stages that compute nothing.
//   bench_runner [steps]
#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "heddle/transport/threads.h"
#include "lib/train/runner.h"

namespace {

using namespace heddle;
using Clock = std::chrono::steady_clock;

constexpr int kMicrobatches = 64;

// Two stages on one rank, one forward and one backward in turn: no transfers.
class InTurn : public IPipelineSchedule {
 public:
  ScheduleTable plan(int, int stages, int microbatches) const override {
    ScheduleTable table(1);
    for (int i = 0; i < microbatches; ++i) {
      for (int stage = 0; stage < stages; ++stage) table[0].push_back({Action::forward, stage, i});
      for (int stage = stages - 1; stage >= 0; --stage) table[0].push_back({Action::backward, stage, i});
    }
    return table;
  }
  int rank_of(int, int, int) const override { return 0; }
  StagesPerRank stages_per_rank() const override { return {2, 2}; }
};

struct Nothing : torch::autograd::Function<Nothing> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& input) {
    return input.view_as(input);
  }
  static Tensors backward(torch::autograd::AutogradContext*, Tensors gradients) { return gradients; }
};

// Gives its input back; with gradients through one node of autograd.
class Idle : public ParallelStage {
 public:
  explicit Idle(bool gradients) : one_(at::ones({1}).set_requires_grad(gradients)) {}
  Tensors forward(Tensors inputs, const Batch&) override {
    at::Tensor input = inputs.empty() ? one_ : std::move(inputs[0]);
    return {input.requires_grad() ? Nothing::apply(input) : std::move(input)};
  }
  void finish_gradients() override {}
  std::span<Shard> owned() override { return {}; }
  void parameters_changed(ParametersChange) override {}

 private:
  at::Tensor one_;
};

Batch rows() {
  Batch batch;
  batch.tokens = batch.labels = at::zeros({kMicrobatches, 8}, at::kLong);
  return batch;
}

double micros_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// Microseconds of an action: the least and the median of the steps.
struct Cost {
  double least = 0, median = 0;
};

template <class Run>
Cost cost_of(int steps, const Run& run) {
  std::vector<double> costs;
  for (int step = 0; step < steps; ++step) {
    const auto begin = Clock::now();
    const size_t actions = run();
    costs.push_back(micros_since(begin) / static_cast<double>(actions));
  }
  std::sort(costs.begin(), costs.end());
  return {costs.front(), costs[costs.size() / 2]};
}

void print(const char* what, Cost cost) {
  std::printf("| %s | %.2f | %.2f |\n", what, cost.least, cost.median);
}

Stages stages_of(bool gradients) {
  Pipeline pipeline;
  pipeline.rank_of_stage = {0, 0};
  pipeline.schedule = std::make_shared<InTurn>();
  Stages stages(pipeline, 0);
  for (int stage = 0; stage < 2; ++stage) stages.push_back(std::make_unique<Idle>(gradients));
  return stages;
}

// The actions of a step by the runner.
Cost by_runner(const DeviceMesh& mesh, int steps, bool gradients, bool recorded) {
  Stages stages = stages_of(gradients);
  train::Runner runner(stages, mesh);
  const std::vector<Batch> batches = {rows()};
  Recording recording;
  recording.actions.reserve(8 * kMicrobatches);
  if (recorded) runner.record(&recording);
  return cost_of(steps, [&] {
    recording.actions.clear();
    runner.train(batches, [] { return 1.0; });
    return size_t{4} * kMicrobatches;
  });
}

// Runs equal forwards, cuts and backwards without a runner.
Cost by_hand(int steps, bool gradients) {
  Idle first(gradients), last(gradients);
  const Batch batch = rows();
  return cost_of(steps, [&] {
    for (int i = 0; i < kMicrobatches; ++i) {
      Batch part;
      for (int stage = 0; stage < 2; ++stage) {
        part.tokens = batch.tokens.narrow(0, i, 1);
        part.labels = batch.labels.narrow(0, i, 1);
      }
      at::Tensor middle = first.forward({}, part)[0];
      at::Tensor input = middle.detach().set_requires_grad(gradients);
      at::Tensor loss = last.forward({input}, part)[0];
      if (!gradients) continue;
      auto& engine = torch::autograd::Engine::get_default_engine();
      engine.execute({torch::autograd::impl::gradient_edge(loss)}, {at::ones({1})}, false, false, true);
      engine.execute({torch::autograd::impl::gradient_edge(middle)}, {input.grad()}, false, false, true);
    }
    return size_t{4} * kMicrobatches;
  });
}

}  // namespace

int main(int count, char** arguments) {
  const int steps = count > 1 ? std::atoi(arguments[1]) : 2000;
  at::set_num_threads(1);
  try {
    ThreadWorld::run(1, [&](Rendezvous& rendezvous) {
      const DeviceMesh mesh = mesh::build(std::vector<Axis>{{"pp", 1}}, rendezvous, "bench: runner");
      std::printf("| microseconds of an action | least | median |\n|---|--:|--:|\n");
      print("runner, stages without gradients", by_runner(mesh, steps, false, false));
      print("the same cuts and calls by hand", by_hand(steps, false));
      print("runner, one node of autograd a stage", by_runner(mesh, steps, true, false));
      print("the same cuts, calls and backwards by hand", by_hand(steps, true));
      print("runner, every action recorded", by_runner(mesh, steps, true, true));
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
