// Context parallelism: the bytes that a rank sends, counted in the dry world; the bytes that it holds,
// counted; and processor time against one rank.
//   bench_context sent | held | time
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "bench/context/offsets.h"
#include "heddle/engine/engine.h"
#include "heddle/transport/threads.h"
#include "tests/core/parallel/held_bytes.h"
#include "tests/llama_model.h"

namespace {

using namespace heddle;
using bench::Offsets;
using bench::tensor_of;

// --- a model ----------------------------------------------------------------------------------------------

ModelConfig model_of(int64_t width, int64_t layers) {
  ModelConfig model;
  model.vocab_size = 2048;
  model.hidden_size = width;
  model.intermediate_size = 3 * width;
  model.num_hidden_layers = layers;
  model.num_attention_heads = 8;
  model.num_key_value_heads = 4;
  model.head_dim = width / 8;
  return model;
}

std::string section_of(const std::string& method, int cp, bool checkpointing) {
  return "distributed: {strategy: fsdp2, mp_policy: {param_dtype: float32, reduce_dtype: float32}, "
         "cp_size: " +
         std::to_string(cp) + ", activation_checkpointing: " + (checkpointing ? "true" : "false") +
         (cp > 1 ? ", context: {method: " + method + "}}" : "}");
}

Batch batch_of(int64_t length, int64_t document, int64_t vocabulary) {
  const at::Tensor words = at::arange(length + 1, at::kLong).mul(7919).remainder(vocabulary).unsqueeze(0);
  Batch batch;
  batch.tokens = words.narrow(1, 0, length).contiguous();
  batch.labels = words.narrow(1, 1, length).contiguous();
  if (document > 0) {
    Offsets offsets;
    for (int64_t at = 0; at <= length; at += document) offsets.push_back(static_cast<int32_t>(at));
    batch.documents = tensor_of(offsets);
  }
  return batch;
}

const std::vector<std::string> kMethods = {"allgather", "ring", "ulysses", "ring_ulysses"};

// --- sent -------------------------------------------------------------------------------------------------

double bytes_sent(const DryLog& calls) {
  double out = 0;
  for (const DryEntry& call : calls) {
    if (!call.group.starts_with("cp")) continue;
    const double others = static_cast<double>(call.group_size - 1) / call.group_size;
    const double bytes = static_cast<double>(call.bytes);
    if (call.operation == mesh::Operation::send) out += bytes;
    if (call.operation == mesh::Operation::all_gather || call.operation == mesh::Operation::reduce_scatter ||
        call.operation == mesh::Operation::all_to_all)
      out += bytes * others;
  }
  return out;
}

double sent_by(const std::string& method, int cp, int64_t length) {
  constexpr int64_t kLayers = 2;
  PluginRegistry plugins(plugin::search_path({}));
  const Node configuration = config::read_text(section_of(method, cp, false), "bench.yaml");
  const ModelConfig model = model_of(256, kLayers);
  engine::DryHost host;
  host.world_size = cp;
  host.make_units = [&](const Setup&) {
    return make_units(model, at::TensorOptions(at::kMeta).dtype(at::kFloat));
  };
  const std::vector<Batch> batches = {batch_of(length, 0, model.vocab_size)};
  host.batches = [&](const DeviceMesh&) { return std::span<const Batch>(batches); };
  return bytes_sent(engine::dry_step(configuration, plugins, host).step) / kLayers;
}

void print_sent() {
  constexpr int64_t kLength = 32768;
  std::printf("| method | cp 2 | cp 4 | cp 8 |\n|---|--:|--:|--:|\n");
  for (const std::string& method : kMethods) {
    std::printf("| `%s` |", method.c_str());
    for (const int cp : {2, 4, 8}) {
      if (method == "ulysses" && cp > 4)
        std::printf(" refused |");
      else
        // The difference leaves out the parameters, which some groups of the same ranks gather too.
        std::printf(" %.1f |",
                    2 * (sent_by(method, cp, kLength) - sent_by(method, cp, kLength / 2)) / (1 << 20));
    }
    std::printf("\n");
  }
}

// --- held and time ----------------------------------------------------------------------------------------

double processor() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Problem {
  ModelConfig model;
  int64_t length, document;
  bool checkpointing;
};

// Calls `act` with a step of this rank.
template <class Act>
void with_step(const Problem& of, const std::string& method, Rendezvous& rendezvous, std::mutex& mutex,
               Act act) {
  const int cp = rendezvous.world_size();
  const Node configuration = config::read_text(section_of(method, cp, of.checkpointing), "bench.yaml");
  std::unique_lock one_at_a_time(mutex);
  PluginRegistry plugins(plugin::search_path({}));
  const Setup setup = engine::validate(configuration, plugins, cp);
  Plan plan = engine::choose(setup, plugins);
  one_at_a_time.unlock();
  const DeviceMesh mesh = mesh::build(setup.axes, rendezvous, "bench: context");
  Stages stages = parallel::build(make_units(of.model, at::TensorOptions(at::kMeta).dtype(at::kFloat)), plan,
                                  mesh, {}, 1);
  Step step(stages, mesh, StepConfig{});
  const std::vector<Batch> batches = {batch_of(of.length, of.document, of.model.vocab_size)};
  const auto once = [&] { step.run(batches, 1e-4, 0.01).loss.item<float>(); };
  once();
  act(once);
}

// Bytes that a step holds at most, of one rank by itself: what comes from others are zeros.
double held_by(const Problem& of, const std::string& method, int cp) {
  DryRendezvous rendezvous(0, cp);
  std::mutex mutex;
  double peak = 0;
  with_step(of, method, rendezvous, mutex,
            [&](const auto& once) { peak = static_cast<double>(tests::held_while(once).peak); });
  return peak;
}

// Processor time of all ranks in the second step.
double seconds_of(const Problem& of, const std::string& method, int cp) {
  std::mutex mutex;
  double begin = 0, out = 0;
  ThreadWorld world(cp, std::chrono::minutes(10));
  world.run([&](Rendezvous& rendezvous) {
    with_step(of, method, rendezvous, mutex, [&](const auto& once) {
      rendezvous.barrier("begin");
      if (rendezvous.rank() == 0) begin = processor();
      rendezvous.barrier("go");
      once();
      rendezvous.barrier("end");
      if (rendezvous.rank() == 0) out = processor() - begin;
    });
  });
  return out;
}

void print_held() {
  const Problem of{model_of(256, 4), 32768, 512, true};
  const double whole = held_by(of, "", 1);
  std::printf(
      "| method | cp | MiB | of one rank's, times cp |\n|---|--:|--:|--:|\n| one rank | 1 | %.1f | 1 |\n",
      whole / (1 << 20));
  for (const std::string& method : kMethods)
    for (const int cp : {2, 4}) {
      const double peak = held_by(of, method, cp);
      std::printf("| `%s` | %d | %.1f | %.3f |\n", method.c_str(), cp, peak / (1 << 20), peak * cp / whole);
      std::fflush(stdout);
    }
}

// One rank and all methods in turn.
void print_time() {
  const Problem of{model_of(256, 2), 8192, 0, false};
  constexpr int kRounds = 3;
  std::map<std::pair<std::string, int>, std::vector<double>> ratios;
  for (int round = 0; round < kRounds; ++round) {
    const double one = seconds_of(of, "", 1);
    for (const std::string& method : kMethods)
      for (const int cp : {2, 4}) ratios[{method, cp}].push_back(seconds_of(of, method, cp) / one);
  }
  std::printf("| method | cp 2 | cp 4 |\n|---|--:|--:|\n");
  for (const std::string& method : kMethods) {
    std::printf("| `%s` |", method.c_str());
    for (const int cp : {2, 4}) {
      std::vector<double>& all = ratios[{method, cp}];
      std::sort(all.begin(), all.end());
      std::printf(" %.2f |", all[kRounds / 2]);
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int count, char** arguments) {
  at::set_num_threads(1);
  const std::string what = count > 1 ? arguments[1] : "";
  if (what == "sent") {
    print_sent();
  } else if (what == "held") {
    print_held();
  } else if (what == "time") {
    print_time();
  } else {
    std::puts("bench_context sent | held | time");
    return 2;
  }
  return 0;
}
