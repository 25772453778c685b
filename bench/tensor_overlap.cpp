// Steps of a model split over two ranks: with and without sequence parallelism, and with the overlap.
//   bench_tensor_overlap [rounds]
// The ranks are threads of one process.
#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bench/turns.h"
#include "heddle/engine/engine.h"
#include "heddle/transport/threads.h"
#include "tests/llama_model.h"

namespace {

using namespace heddle;
using bench::Contender;

constexpr int kRanks = 2;

ModelConfig llama() {
  ModelConfig model;
  model.vocab_size = 1024;
  model.hidden_size = 256;
  model.intermediate_size = 704;
  model.num_hidden_layers = 4;
  model.num_key_value_heads = model.num_attention_heads = 4;
  model.head_dim = 64;
  return model;
}

Batch one_batch() {
  Batch batch;
  batch.tokens = at::randint(1024, {4, 128}, at::kLong);
  batch.labels = at::randint(1024, {4, 128}, at::kLong);
  return batch;
}

Contender prepare(const std::string& label, const std::string& fields, PluginRegistry& plugins,
                  const DeviceMesh& mesh) {
  Contender one{label, {}, {}, {}};
  Plan plan;
  plan.strategy = plugins.strategy("single")->make(Node::map({}));
  const OfferedParallelizer* offered = plugins.parallelizer("tensor");
  if (offered == nullptr) throw plugins.missing("parallelizer", "tensor");
  plan.parallelizers.push_back(offered->make(config::read_text(fields, "bench")));
  const auto meta = at::TensorOptions().dtype(at::kFloat).device(at::kMeta);
  one.stages = parallel::build(make_units(llama(), meta), plan, mesh, {}, 1);
  return one;
}

void measure(Rendezvous& rendezvous, PluginRegistry& plugins, int rounds) {
  at::set_num_threads(1);
  const DeviceMesh mesh = mesh::build(std::vector<Axis>{{"tp", kRanks}}, rendezvous, "bench: tensor_overlap");
  std::vector<Contender> contenders;
  contenders.push_back(prepare("plain", "{}", plugins, mesh));
  contenders.push_back(prepare("sequence parallel", "sequence_parallel: true", plugins, mesh));
  contenders.push_back(prepare("sequence parallel, overlapped",
                               "{sequence_parallel: true, enable_async_tensor_parallel: true}", plugins,
                               mesh));
  bench::make_steps(contenders, mesh);
  const std::vector<Batch> batches = {one_batch()};
  bench::take_turns(contenders, batches, rounds);
  if (rendezvous.rank() == 0) bench::print(contenders, "tp 2", "plain");
}

}  // namespace

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::max(1, std::atoi(arguments[1])) : 50;
  try {
    PluginRegistry plugins(plugin::search_path({}));
    ThreadWorld::run(kRanks, [&](Rendezvous& rendezvous) { measure(rendezvous, plugins, rounds); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
