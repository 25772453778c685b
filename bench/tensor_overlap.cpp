// Steps of a model split over two ranks: with and without sequence parallelism, and with the overlap.
//   bench_tensor_overlap [rounds]
// The ranks are threads of one process.
#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "heddle/engine/engine.h"
#include "heddle/mesh/threads.h"
#include "trainer/models/make_units.h"

namespace {

using namespace heddle;

constexpr int kRanks = 2;

// All ways take turns inside one run, so what else the machine does falls on all alike.
struct Contender {
  std::string label, fields;
  Stages stages;
  std::unique_ptr<Step> step;
  std::vector<double> milliseconds;
};

ModelConfig llama() {
  ModelConfig model;
  model.vocab_size = 1024;
  model.hidden_size = 256;
  model.intermediate_size = 704;
  model.num_hidden_layers = 4;
  model.num_attention_heads = model.num_key_value_heads = 4;
  model.head_dim = 64;
  return model;
}

Batch one_batch() {
  Batch batch;
  batch.tokens = at::randint(1024, {4, 128}, at::kLong);
  batch.labels = at::randint(1024, {4, 128}, at::kLong);
  return batch;
}

void prepare(Contender& one, PluginRegistry& plugins, const DeviceMesh& mesh) {
  Plan plan;
  plan.strategy = plugins.strategy("single")->make(Node::map({}));
  const OfferedParallelizer* offered = plugins.parallelizer("tensor");
  if (offered == nullptr) throw plugins.missing("parallelizer", "tensor");
  plan.parallelizers.push_back(offered->make(config::read_text(one.fields, "bench")));
  const auto meta = at::TensorOptions().dtype(at::kFloat).device(at::kMeta);
  one.stages = parallel::build(make_units(llama(), meta), plan, mesh, {}, 1);
  one.step = std::make_unique<Step>(one.stages, mesh, StepConfig{});
}

void run_once(Contender& one, const std::vector<Batch>& batches) {
  const auto start = std::chrono::steady_clock::now();
  one.step->run(batches, 1e-4, 0.01);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  one.milliseconds.push_back(took.count());
}

void print(std::vector<Contender>& contenders) {
  double first_least = 0, first_median = 0;
  std::printf("| tp 2 | least ms | median ms | least / plain | median / plain |\n|---|--:|--:|--:|--:|\n");
  for (Contender& one : contenders) {
    std::sort(one.milliseconds.begin(), one.milliseconds.end());
    const double least = one.milliseconds.front(), median = one.milliseconds[one.milliseconds.size() / 2];
    if (first_least == 0) first_least = least, first_median = median;
    std::printf("| %s | %.2f | %.2f | %.2f | %.2f |\n", one.label.c_str(), least, median, least / first_least,
                median / first_median);
  }
}

void measure(Rendezvous& meeting, PluginRegistry& plugins, int rounds) {
  at::set_num_threads(1);
  const DeviceMesh mesh = mesh::build(std::vector<Axis>{{"tp", kRanks}}, meeting, "bench: tensor_overlap");
  std::vector<Contender> contenders(3);
  contenders[0] = {"plain", "{}", {}, {}, {}};
  contenders[1] = {"sequence parallel", "sequence_parallel: true", {}, {}, {}};
  contenders[2] = {"sequence parallel, overlapped",
                   "{sequence_parallel: true, enable_async_tensor_parallel: true}",
                   {},
                   {},
                   {}};
  for (Contender& one : contenders) prepare(one, plugins, mesh);
  const std::vector<Batch> batches = {one_batch()};
  for (int round = 0; round < rounds + 3; ++round) {
    if (round == 3)
      for (Contender& one : contenders) one.milliseconds.clear();
    for (Contender& one : contenders) run_once(one, batches);
  }
  if (meeting.rank() == 0) print(contenders);
}

}  // namespace

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::max(1, std::atoi(arguments[1])) : 50;
  try {
    PluginRegistry plugins(plugin::search_path({}));
    ThreadWorld::run(kRanks, [&](Rendezvous& meeting) { measure(meeting, plugins, rounds); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
