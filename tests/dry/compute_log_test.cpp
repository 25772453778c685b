// FLOPs and memory that a dry step records, compared with a formula and with a real step.
#include <ATen/TensorOperators.h>
#include <ATen/core/TensorBody.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "heddle/base/error.h"
#include "heddle/engine/engine.h"
#include "heddle/parallel/shard.h"
#include "heddle/transport/threads.h"

namespace heddle {
namespace {

constexpr int64_t kHidden = 64, kInner = 160, kVocabulary = 512, kLayers = 6, kBatchRows = 3, kLength = 96;
constexpr const char* kSmallLlama =
    "{model_type: llama, vocab_size: 512, hidden_size: 64, intermediate_size: 160, num_hidden_layers: 6, "
    "num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 96, tie_word_embeddings: "
    "false}";

// Top-2 of eight experts.
constexpr const char* kExperts =
    "{model_type: qwen3_moe, vocab_size: 512, hidden_size: 64, intermediate_size: 160, num_hidden_layers: 2, "
    "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16, max_position_embeddings: 96, num_experts: "
    "8, "
    "num_experts_per_tok: 2, moe_intermediate_size: 48, tie_word_embeddings: false}";

PluginRegistry& known_plugins() {
  static PluginRegistry registry({HEDDLE_BINARY_DIR "/plugins"});
  return registry;
}

Units units_on(c10::Device device, const char* keys = kSmallLlama) {
  const auto model = engine::read_model(config::read_text(keys, "config.json"), known_plugins());
  return model->make_units(at::TensorOptions(at::kFloat).device(device));
}

std::vector<Batch> batches(int64_t count) {
  Batch batch;
  batch.tokens = at::arange(kBatchRows * kLength).view({kBatchRows, kLength}).remainder(kVocabulary);
  batch.labels = (batch.tokens * 3 + 1).remainder(kVocabulary);
  return std::vector<Batch>(static_cast<size_t>(count), batch);
}

struct Asked {
  std::string distributed = "{strategy: single}";
  int world_size = 1;
  int64_t microbatches = 1;
  bool kernels = false;
  int rank = 0;
  const char* model = kSmallLlama;
};

engine::DryStep step_of(const Asked& asked) {
  const Node configuration = config::read_text("distributed: " + asked.distributed + "\n", "dry.yaml");
  const std::vector<Batch> given = batches(asked.microbatches);
  engine::DryHost host;
  host.rank = asked.rank;
  host.world_size = asked.world_size;
  host.kernels = asked.kernels;
  host.make_units = [&](const Setup&) { return units_on(at::kMeta, asked.model); };
  host.batches = [&](const DeviceMesh&) { return std::span<const Batch>(given); };
  return engine::dry_step(configuration, known_plugins(), host);
}

double products_of(const engine::DryStep& step) {
  double sum = 0;
  for (const OperatorCall& call : step.computed.calls)
    if (call.product && call.moment >= step.begin) sum += call.cost.operations;
  return sum;
}

int64_t peak_of(const engine::DryStep& step) {
  return step.computed.peak(step.begin);
}

// Counts the bytes that LibTorch's CPU allocator holds.
struct Counted final : c10::MemoryReportingInfoBase {
  int64_t now = 0, peak = 0;
  void reportMemoryUsage(void* /*at*/, int64_t size, size_t /*all*/, size_t /*reserved*/,
                         c10::Device /*of*/) override {
    now += size;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
};

int64_t real_peak(const std::string& distributed, int ranks) {
  const Node configuration = config::read_text("distributed: " + distributed + "\n", "real.yaml");
  const std::vector<Batch> given = batches(1);
  int64_t peak = 0;
  ThreadWorld::run(ranks, [&](Rendezvous& rendezvous) {
    const auto counted = std::make_shared<Counted>();
    const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, counted);
    engine::Model model =
        engine::model(configuration, known_plugins(),
                      {rendezvous, [](const Setup&) { return units_on(at::kMeta); }, {}, 1, {}});
    Step step(model.stages, model.mesh, {});
    counted->peak = counted->now;
    step.run(given, 1e-3, 0.1);
    if (rendezvous.rank() == 0) peak = counted->peak;
  });
  return peak;
}

TEST(ComputeLog, CountsTheOperationsOfProducts) {
  const double tokens = kBatchRows * kLength, pairs = kBatchRows * kLength * (kLength + 1) / 2.0;
  const double layer =
      kHidden * kHidden + 2 * kHidden * kHidden / 2 + kHidden * kHidden + 3 * kHidden * kInner;
  // 2 FLOPs per weight forward, 4 backward. Attention has 2 products forward and 5 backward.
  const double linears = 6 * tokens * (kLayers * layer + kVocabulary * kHidden);
  const double attention = kLayers * 7 * 2 * pairs * kHidden;
  EXPECT_DOUBLE_EQ(products_of(step_of({})), linears + attention);
  EXPECT_DOUBLE_EQ(products_of(step_of({.microbatches = 3})), 3 * (linears + attention));
  EXPECT_DOUBLE_EQ(products_of(step_of({.kernels = true})), linears + attention);
}

struct Compared {
  const char* distributed;
  int ranks;
  double most;  // tolerance
};

// CPU kernels save the same tensors for backward as device kernels. On the CPU, fsdp2 keeps the buffer of a
// freed unit for the next unit.
TEST(ComputeLog, MeasuresThePeakOfARealStep) {
  for (const Compared& one :
       {Compared{"{strategy: single}", 1, 0.05},
        {"{strategy: single, activation_checkpointing: true}", 1, 0.05},
        {"{strategy: ddp}", 2, 0.05},
        {"{strategy: megatron_fsdp, dp_size: none}", 2, 0.05},
        {"{strategy: fsdp2, dp_size: none}", 2, 0.2},
        {"{strategy: fsdp2, dp_size: none, tp_size: 2, sequence_parallel: true}", 4, 0.2}}) {
    const auto dry = static_cast<double>(peak_of(step_of({one.distributed, one.ranks, 1, /*kernels=*/true})));
    const auto real = static_cast<double>(real_peak(one.distributed, one.ranks));
    EXPECT_NEAR(dry / real, 1, one.most) << one.distributed << ": " << dry << " and " << real;
  }
}

// Each rank of a ring computes only its part of the attention pairs.
TEST(ComputeLog, ContextParallelismSplitsTheOperations) {
  const double whole = products_of(step_of({}));
  for (const std::string method : {"ring", "ulysses", "allgather"}) {
    const engine::DryStep part =
        step_of({"{strategy: fsdp2, dp_size: none, cp_size: 2, context: {method: " + method + "}}", 2});
    EXPECT_NEAR(products_of(part), whole / 2, 1e-9 * whole) << method;
  }
}

TEST(ComputeLog, RecomputationHoldsLessAndComputesAgain) {
  const engine::DryStep kept = step_of({}),
                        again = step_of({"{strategy: single, activation_checkpointing: true}"});
  EXPECT_LT(peak_of(again), peak_of(kept));
  EXPECT_GT(products_of(again), products_of(kept));
}

TEST(ComputeLog, MicrobatchesOfOneShapeNeedNoMoreMemory) {
  const int64_t one = peak_of(step_of({.microbatches = 1})), three = peak_of(step_of({.microbatches = 3}));
  EXPECT_LT(static_cast<double>(three), 1.3 * static_cast<double>(one));
}

// A dry rank runs the stages of other ranks on meta for their shapes. Their memory and FLOPs do not count.
TEST(ComputeLog, StagesOfOtherRanksCostNothing) {
  const std::string pipeline = "{strategy: ddp, pp_size: 2, pipeline: {pp_schedule: gpipe}}";
  const engine::DryStep whole = step_of({}), last = step_of({pipeline, 2, 1, false, /*rank=*/1}),
                        first = step_of({pipeline, 2});
  EXPECT_DOUBLE_EQ(products_of(first) + products_of(last), products_of(whole));
  const auto before = [](const engine::DryStep& step) {
    return static_cast<double>(step.computed.alive(step.begin));
  };
  EXPECT_NEAR(before(first) + before(last), before(whole), 0.02 * before(whole));
}

// The prediction assumes balanced routing.
TEST(ComputeLog, ExpertParallelismLeavesARankItsShareOfTheChoices) {
  const double alone = products_of(step_of({.model = kExperts}));
  for (const std::string dispatcher : {"allgather", "alltoall"}) {
    const std::string words =
        "{strategy: fsdp2, dp_size: none, ep_size: 2, moe: {dispatcher: " + dispatcher + "}}";
    EXPECT_DOUBLE_EQ(products_of(step_of({words, 2, 1, false, 0, kExperts})), alone) << dispatcher;
  }
}

// A gathered unit stays in memory only while it is in use.
TEST(ComputeLog, GatheredUnitsAreFreed) {
  const std::string fsdp2 = "{strategy: fsdp2, dp_size: none";
  const engine::DryStep freed = step_of({fsdp2 + ", reshard_after_forward: true}", 8});
  const engine::DryStep kept = step_of({fsdp2 + ", reshard_after_forward: false}", 8});
  EXPECT_LT(peak_of(freed), peak_of(kept));
  EXPECT_EQ(freed.computed.alive(freed.begin), kept.computed.alive(kept.begin));
}

TEST(ComputeLog, KernelsOfADeviceAreFewerOperatorsThatMoveLess) {
  const engine::DryStep plain = step_of({}), kernels = step_of({.kernels = true});
  EXPECT_LT(kernels.computed.calls.size(), plain.computed.calls.size());
  const OperatorCost with = kernels.computed.total(kernels.begin),
                     without = plain.computed.total(plain.begin);
  EXPECT_LT(with.read + with.written, without.read + without.written);
  const auto is_norm = [](const OperatorCall& call) { return std::string(call.name) == "heddle::rms_norm"; };
  EXPECT_EQ(std::count_if(kernels.computed.calls.begin(), kernels.computed.calls.end(), is_norm),
            2 * kLayers + 1);
}

TEST(ComputeLog, AllocationsHaveLifetimes) {
  const ComputeRecorder recorder;
  const auto options = at::TensorOptions(at::kFloat).device(at::kMeta);
  at::Tensor kept = at::empty({10}, options);
  const int64_t before = recorder.moment();
  { const at::Tensor freed = kept + kept; }
  parallel::resize_storage(kept, 0);
  const ComputeLog log = recorder.log();
  ASSERT_EQ(log.allocations.size(), 2U);
  EXPECT_EQ(log.peak(), 80);
  EXPECT_EQ(log.alive(before), 40);
  EXPECT_EQ(log.alive(recorder.moment()), 0);
  ASSERT_EQ(log.calls.size(), 1U);
  EXPECT_STREQ(log.calls[0].name, "aten::add");
  EXPECT_EQ(log.calls[0].cost.read, 80);
  EXPECT_EQ(log.calls[0].cost.written, 40);
}

TEST(ComputeLog, AllowsTensorsToOutliveTheRecorder) {
  at::Tensor kept;
  {
    const ComputeRecorder recorder;
    kept = at::empty({10}, at::TensorOptions(at::kFloat).device(at::kMeta));
  }
  EXPECT_EQ(kept.nbytes(), 40U);
  kept.reset();
}

TEST(ComputeLog, AllowsOneRecorderPerThread) {
  const ComputeRecorder recorder;
  EXPECT_THROW(ComputeRecorder(), Error);
}

}  // namespace
}  // namespace heddle
