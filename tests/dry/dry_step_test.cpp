// Dry run of one step of a 70B model as any of 4,096 ranks, without tensor memory and without
// communication.
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "heddle/engine/engine.h"
#include "tests/main/with_all.h"
#include "tests/quiet.h"

namespace heddle {
namespace {

HEDDLE_WITH_ALL("DryStep.RunsEveryStrategyAndScheduleInAPipeline");

using engine::DryStep;

constexpr int kWorld = 4096;
#ifdef __SANITIZE_ADDRESS__
constexpr double kSeconds = 10;  // mostly sanitizer checks
#else
constexpr double kSeconds = 2;
#endif
constexpr double kBusy = 10;  // other jobs share the caches and the core's second hardware thread
constexpr int64_t kKibibytes = int64_t{2} << 20;

// Llama 3 70B.
constexpr const char* kConfig = R"({
  "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 8192,
  "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
  "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "hidden_act": "silu",
  "tie_word_embeddings": false, "torch_dtype": "bfloat16"
})";
constexpr int64_t kParameters = 70553706496;

PluginRegistry& plugins() {
  static PluginRegistry registry({HEDDLE_BINARY_DIR "/plugins"});
  return registry;
}

const ModelSpec& llama() {
  static const std::shared_ptr<const ModelSpec> model = [] {
    const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "heddle_dry_step";
    std::filesystem::create_directories(folder);
    const std::filesystem::path file = folder / "config.json";
    std::ofstream(file) << kConfig;
    return engine::read_model(file, plugins());
  }();
  return *model;
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

int64_t peak_kibibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// Returns `samples` sequences of 8,192 tokens.
std::vector<Batch> batches_of(int64_t samples) {
  const auto options = at::TensorOptions(at::kLong).device(at::kMeta);
  Batch batch;
  batch.tokens = at::empty({samples, 8192}, options);
  batch.labels = at::empty({samples, 8192}, options);
  return {batch};
}

DryStep step_of(const std::string& distributed, int rank, int64_t samples = 1) {
  const Node configuration = config::read_text("distributed:\n  dp_size: none\n" + distributed, "dry.yaml");
  const std::vector<Batch> batches = batches_of(samples);
  engine::DryHost host;
  host.rank = rank;
  host.world_size = kWorld;
  host.make_units = [](const Setup&) {
    return llama().make_units(at::TensorOptions(at::kBFloat16).device(at::kMeta));
  };
  host.batches = [&](const DeviceMesh&) { return std::span<const Batch>(batches); };
  llama();
  engine::validate(configuration, plugins(), kWorld);  // opens the plugins
  const double begin = processor_seconds();
  DryStep step = engine::dry_step(configuration, plugins(), host);
  EXPECT_LT(processor_seconds() - begin, (tests::machine_is_quiet() ? 1 : kBusy) * kSeconds)
      << distributed << "rank " << rank;
  EXPECT_LT(peak_kibibytes(), kKibibytes);
  return step;
}

std::string pipeline_of(const std::string& strategy, const std::string& schedule) {
  return "  strategy: " + strategy + "\n  tp_size: 8\n  pp_size: 8\n  pipeline: {pp_schedule: " + schedule +
         "}\n";
}

int64_t count(const DryLog& log, const DryEntry& entry) {
  return std::count(log.begin(), log.end(), entry);
}

TEST(DryStep, HoldsTheWholeModelInAReplica) {
  const DryStep step = step_of("  strategy: ddp\n", 17);
  EXPECT_EQ(step.parameters, kParameters);
  EXPECT_EQ(step.bytes, 2 * kParameters);
  EXPECT_EQ(step.peak_alive, 1);
}

TEST(DryStep, ReceivesTheOutputsOfEarlierStages) {
  const DryStep step = step_of(pipeline_of("fsdp2", "1f1b"), 2049, 16);
  const int64_t hidden = int64_t{8192} * 8192 * 2;  // one sequence of hidden states in bfloat16
  EXPECT_EQ(count(step.step, {mesh::Operation::receive, hidden, "pp", 8}), 2 * 16);
  EXPECT_EQ(count(step.step, {mesh::Operation::send, hidden, "pp", 8}), 2 * 16);
  EXPECT_EQ(step.peak_alive, 4);  // rank of the fifth of eight stages
}

TEST(DryStep, RunsStrategiesWithoutAPipeline) {
  for (const char* strategy : {"fsdp2", "ddp", "megatron_fsdp", "megatron"})
    for (const int rank : {0, 2049, kWorld - 1})
      step_of(std::string("  strategy: ") + strategy + "\n  tp_size: 8\n", rank);
}

TEST(DryStep, RunsEveryStrategyAndScheduleInAPipeline) {
  int rank = 0;
  for (const char* strategy : {"fsdp2", "ddp", "megatron"})
    for (const std::string& schedule : plugins().names("schedule"))
      for (int i = 0; i < 2; ++i) step_of(pipeline_of(strategy, schedule), rank = (rank + 1117) % kWorld, 16);
}

// A machine without GPUs predicts a run on GPUs.
TEST(DryStep, RunsForAnAbsentDevice) {
  step_of("  strategy: fsdp2\ndist_env: {backend: nccl}\n", 5);
}

// The recorded host memory covers offloaded tensors.
TEST(DryStep, RunsWithOffloading) {
  step_of("  strategy: fsdp2\n  dp_replicate_size: 2048\n  offload_policy: {pin_memory: true}\n", 3);
}

// Bounds messages and connections of host reductions, which GPU runs use for small sums. Counts are those of
// a group's first rank (the most: tests/transport/sparse_wire_test.cpp), without shared memory.
TEST(DryStep, SumsOfTheHostTakeFewMessagesAndConnectionsOfARank) {
  constexpr int64_t kNumber = 8;  // bytes of a label-token count or a loss
  for (const char* strategy : {"fsdp2", "ddp", "megatron_fsdp", "megatron"})
    for (const char* pipeline : {"", "  pp_size: 8\n  pipeline: {pp_schedule: 1f1b}\n"}) {
      if (*pipeline != 0 && std::string(strategy) == "megatron_fsdp") continue;  // no pipeline support
      const DryStep step =
          step_of(std::string("  strategy: ") + strategy + "\n  tp_size: 8\n" + pipeline, 0, 8);
      int64_t messages = 0;
      std::map<std::string, int64_t> connections;
      for (const DryEntry& entry : step.step) {
        if (entry.operation != mesh::Operation::all_reduce || entry.bytes > kNumber) continue;
        int64_t log = 0;
        while ((int64_t{1} << log) < entry.group_size) ++log;
        const int64_t peers = entry.group_size <= 16 ? entry.group_size - 1 : log;
        messages += 2 * peers;
        connections[entry.group] = peers;
      }
      int64_t all = 0;
      for (const auto& [group, count] : connections) all += count;
      std::printf("| %s%s | %ld messages | %ld connections |\n", strategy, *pipeline != 0 ? ", pp 8" : "",
                  static_cast<long>(messages), static_cast<long>(all));
      EXPECT_GT(messages, 0);
      EXPECT_LE(messages, 64) << strategy << pipeline;
      EXPECT_LE(all, 64) << strategy << pipeline;
    }
}

}  // namespace
}  // namespace heddle
