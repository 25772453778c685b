// What strategies cost on the host: steps of a model so narrow that little else remains, against `single`.
//   bench_host_cost [rounds]
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

constexpr int64_t kLayers = 24, kWidth = 64, kSequence = 4, kBatch = 8;

// One way to run the step; all ways run in turn, so what else the machine does falls on all alike.
struct Contender {
  std::string label, strategy, section;
  Stages stages;
  std::unique_ptr<Step> step;
  std::vector<double> milliseconds;
};

ModelConfig narrow_llama() {
  ModelConfig model;
  model.vocab_size = 256;
  model.hidden_size = kWidth;
  model.intermediate_size = 2 * kWidth;
  model.num_hidden_layers = kLayers;
  model.num_attention_heads = model.num_key_value_heads = 4;
  model.head_dim = kWidth / 4;
  return model;
}

Batch one_batch() {
  Batch batch;
  batch.tokens = at::randint(256, {kBatch, kSequence}, at::kLong);
  batch.labels = at::randint(256, {kBatch, kSequence}, at::kLong);
  return batch;
}

void prepare(Contender& one, PluginRegistry& plugins, const DeviceMesh& mesh) {
  const OfferedStrategy* offered = plugins.strategy(one.strategy);
  if (offered == nullptr) throw plugins.missing("strategy", one.strategy);
  Plan plan;
  plan.strategy = offered->make(config::read_text(one.section, "bench"));
  const auto meta = at::TensorOptions().dtype(at::kFloat).device(at::kMeta);
  one.stages = parallel::build(make_units(narrow_llama(), meta), plan, mesh, {}, 1);
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
  std::printf(
      "| strategy | least ms | median ms | least / single | median / single |\n|---|--:|--:|--:|--:|\n");
  for (Contender& one : contenders) {
    std::sort(one.milliseconds.begin(), one.milliseconds.end());
    const double least = one.milliseconds.front(), median = one.milliseconds[one.milliseconds.size() / 2];
    if (first_least == 0) first_least = least, first_median = median;
    std::printf("| %s | %.2f | %.2f | %.2f | %.2f |\n", one.label.c_str(), least, median, least / first_least,
                median / first_median);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const int rounds = count > 1 ? std::atoi(arguments[1]) : 200;
  at::set_num_threads(1);
  try {
    PluginRegistry plugins(plugin::search_path({}));
    ThreadWorld::run(1, [&](Rendezvous& meeting) {
      const DeviceMesh mesh = mesh::build(std::vector<Axis>{{"dp_shard", 1}}, meeting, "bench: host_cost");
      std::vector<Contender> contenders(4);
      contenders[0].label = contenders[0].strategy = "single";
      contenders[1].label = contenders[1].strategy = "ddp";
      contenders[2].label = "fsdp2, fp32";
      contenders[2].section = "mp_policy: {param_dtype: float32, reduce_dtype: float32}";
      contenders[3].label = "fsdp2, bf16 compute and fp32 sums";
      contenders[2].strategy = contenders[3].strategy = "fsdp2";
      for (Contender& one : contenders) {
        if (one.section.empty()) one.section = "{}";
        prepare(one, plugins, mesh);
      }
      const std::vector<Batch> batches = {one_batch()};
      for (int round = 0; round < rounds + 5; ++round) {
        if (round == 5)
          for (Contender& one : contenders) one.milliseconds.clear();
        for (Contender& one : contenders) run_once(one, batches);
      }
      print(contenders);
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
