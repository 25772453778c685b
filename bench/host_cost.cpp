// Host time of strategies: steps of a model so narrow that little else remains, against `single`.
//   bench_host_cost [rounds]
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

constexpr int64_t kLayers = 24, kWidth = 64, kSequence = 4, kBatch = 8;

ModelConfig narrow_llama() {
  ModelConfig model;
  model.vocab_size = 256;
  model.hidden_size = kWidth;
  model.intermediate_size = 2 * kWidth;
  model.num_hidden_layers = kLayers;
  model.num_key_value_heads = model.num_attention_heads = 4;
  model.head_dim = kWidth / 4;
  return model;
}

Batch one_batch() {
  Batch batch;
  batch.tokens = at::randint(256, {kBatch, kSequence}, at::kLong);
  batch.labels = at::randint(256, {kBatch, kSequence}, at::kLong);
  return batch;
}

Contender prepare(const std::string& label, const std::string& strategy, const std::string& section,
                  PluginRegistry& plugins, const DeviceMesh& mesh) {
  const OfferedStrategy* offered = plugins.strategy(strategy);
  if (offered == nullptr) throw plugins.missing("strategy", strategy);
  Contender one{label, {}, {}, {}};
  Plan plan;
  plan.strategy = offered->make(config::read_text(section, "bench"));
  const auto meta = at::TensorOptions().dtype(at::kFloat).device(at::kMeta);
  one.stages = parallel::build(make_units(narrow_llama(), meta), plan, mesh, {}, 1);
  return one;
}

}  // namespace

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 200;
  at::set_num_threads(1);
  try {
    PluginRegistry plugins(plugin::search_path({}));
    ThreadWorld::run(1, [&](Rendezvous& rendezvous) {
      const DeviceMesh mesh = mesh::build(std::vector<Axis>{{"dp_shard", 1}}, rendezvous, "bench: host_cost");
      std::vector<Contender> contenders;
      const std::string fp32 = "mp_policy: {param_dtype: float32, reduce_dtype: float32}";
      contenders.push_back(prepare("single", "single", "{}", plugins, mesh));
      contenders.push_back(prepare("ddp", "ddp", "{}", plugins, mesh));
      contenders.push_back(prepare("fsdp2, fp32", "fsdp2", fp32, plugins, mesh));
      contenders.push_back(prepare("fsdp2, bf16 compute and fp32 sums", "fsdp2", "{}", plugins, mesh));
      bench::make_steps(contenders, mesh);
      const std::vector<Batch> batches = {one_batch()};
      bench::take_turns(contenders, batches, rounds);
      bench::print(contenders, "strategy", "single");
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
