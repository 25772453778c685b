// The predicted peak memory of random layouts, compared with the tensors of real runs on threads.
#include <ATen/TensorOperators.h>
#include <ATen/core/TensorBody.h>
#include <ATen/ops/arange.h>
#include <c10/core/Allocator.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/engine/engine.h"
#include "heddle/transport/threads.h"

namespace heddle {
namespace {

constexpr int64_t kTokens = 64, kWords = 512;
constexpr const char* kDenseModel =
    "{model_type: llama, vocab_size: 512, hidden_size: 128, intermediate_size: 320, num_hidden_layers: 6, "
    "num_attention_heads: 4, num_key_value_heads: 4, max_position_embeddings: 96, tie_word_embeddings: "
    "false}";

PluginRegistry& plugins_of_layouts() {
  static PluginRegistry registry({HEDDLE_BINARY_DIR "/plugins"});
  return registry;
}

// Every token selects all experts, so that their loads are equal, as in a dry step.
constexpr const char* kMixtureModel =
    "{model_type: qwen3_moe, vocab_size: 512, hidden_size: 128, intermediate_size: 320, "
    "moe_intermediate_size: 96, num_experts: 4, num_experts_per_tok: 4, num_hidden_layers: 6, "
    "num_attention_heads: 4, num_key_value_heads: 4, head_dim: 32, max_position_embeddings: 96, "
    "tie_word_embeddings: false}";

Units meta_units(const char* keys) {
  const auto model = engine::read_model(config::read_text(keys, "config.json"), plugins_of_layouts());
  return model->make_units(at::TensorOptions(at::kFloat).device(at::kMeta));
}

// Bytes of the tensors that a thread allocated, whichever thread frees them.
struct HeldBytes {
  std::mutex mutex;
  int64_t now = 0, peak = 0;
  void add(int64_t bytes) {
    const std::lock_guard lock(mutex);
    now += bytes;
    peak = std::max(peak, now);
  }
};

thread_local std::shared_ptr<HeldBytes> held_by_thread;

// LibTorch's allocator of the CPU, which counts for threads with `held_by_thread`.
class CountingAllocator final : public c10::Allocator {
 public:
  static void install() {
    static CountingAllocator allocator;
    static std::once_flag once;
    std::call_once(once, [] {
      base();
      c10::SetAllocator(c10::kCPU, &allocator, /*priority=*/1);
    });
  }
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    char* const whole = static_cast<char*>(base()->raw_allocate(bytes + kBefore));
    const int64_t counted = held_by_thread == nullptr ? 0 : static_cast<int64_t>(bytes);
    new (whole) Block{counted, held_by_thread};
    if (counted > 0) held_by_thread->add(counted);
    return {whole + kBefore, whole + kBefore, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    base()->copy_data(to, from, bytes);
  }

 private:
  struct Block {
    int64_t bytes;
    std::shared_ptr<HeldBytes> held;
  };
  static constexpr size_t kBefore = 64;  // bytes of a Block and padding before the data
  static_assert(sizeof(Block) <= kBefore);
  // LibTorch's own allocator; first called before install() replaces it.
  static c10::Allocator* base() {
    static c10::Allocator* const allocator = c10::GetAllocator(c10::kCPU);
    return allocator;
  }
  static void release(void* data) {
    char* const whole = static_cast<char*>(data) - kBefore;
    auto* const block = reinterpret_cast<Block*>(whole);
    if (block->held != nullptr) block->held->add(-block->bytes);
    block->~Block();
    base()->raw_deallocate(whole);
  }
};

struct RandomLayout {
  const char* model = kDenseModel;
  std::string distributed;
  int world = 1;
  int64_t rows = 1, microbatches = 1;
};

RandomLayout random_layout(std::mt19937& random, const char* model) {
  const auto choice = [&](const auto& values) { return values[random() % std::size(values)]; };
  RandomLayout out;
  out.model = model;
  const std::string strategy = choice(std::vector<std::string>{"ddp", "fsdp2", "megatron", "megatron_fsdp"});
  const int tp = choice(std::vector<int>{1, 1, 2}),
            pp = strategy == "megatron_fsdp" ? 1 : choice(std::vector<int>{1, 2}),
            dp = choice(std::vector<int>{1, 2});
  out.world = tp * pp * dp;
  out.rows = choice(std::vector<int64_t>{1, 2});
  out.microbatches = choice(std::vector<int64_t>{1, 2, 4});
  if (pp > 1) out.microbatches = std::max<int64_t>(2, out.microbatches);
  out.distributed = "{strategy: " + strategy + ", dp_size: none, tp_size: " + std::to_string(tp) +
                    ", pp_size: " + std::to_string(pp) + ", activation_checkpointing: " +
                    choice(std::vector<std::string>{"false", "selective", "full"});
  if (model == kMixtureModel) {
    const int ep = choice(std::vector<int>{1, 2, 4});
    const int etp = choice(std::vector<int>{1, 1, 2});
    if (ep * etp <= tp * dp)
      out.distributed += ", ep_size: " + std::to_string(ep) + ", etp_size: " + std::to_string(etp);
  }
  if (pp > 1)
    out.distributed +=
        ", pipeline: {pp_schedule: 1f1b, pp_microbatch_size: " + std::to_string(out.rows) + "}";
  if (strategy == "fsdp2")
    out.distributed += choice(std::vector<std::string>{"", ", defer_fsdp_grad_sync: false"});
  if (strategy == "fsdp2" && pp == 1)
    out.distributed += choice(std::vector<std::string>{"", ", reshard_after_forward: false"});
  out.distributed += "}";
  return out;
}

std::vector<Batch> batches_of(const RandomLayout& layout) {
  const bool is_pipeline = layout.distributed.find("pipeline") != std::string::npos;
  const int64_t rows = layout.rows * (is_pipeline ? layout.microbatches : 1);
  Batch batch;
  batch.tokens = at::arange(rows * kTokens).view({rows, kTokens}).remainder(kWords);
  batch.labels = (batch.tokens * 3 + 1).remainder(kWords);
  return std::vector<Batch>(static_cast<size_t>(is_pipeline ? 1 : layout.microbatches), batch);
}

// Returns the peak of each rank during a step.
std::vector<int64_t> real_peaks(const RandomLayout& layout) {
  const Node configuration = config::read_text("distributed: " + layout.distributed + "\n", "real.yaml");
  const std::vector<Batch> batches = batches_of(layout);
  std::vector<int64_t> peaks(static_cast<size_t>(layout.world));
  CountingAllocator::install();
  ThreadWorld::run(layout.world, [&](Rendezvous& rendezvous) {
    const auto counted = std::make_shared<HeldBytes>();
    held_by_thread = counted;
    engine::Model model =
        engine::model(configuration, plugins_of_layouts(),
                      {rendezvous, [&](const Setup&) { return meta_units(layout.model); }, {}, 1, {}});
    Step step(model.stages, model.mesh, {});
    counted->peak = counted->now;
    step.run(batches, 1e-3, 0.1);
    peaks[rendezvous.rank()] = counted->peak;
    step.settle();
    held_by_thread.reset();
  });
  return peaks;
}

int64_t predicted_peak(const RandomLayout& layout, int rank) {
  const Node configuration = config::read_text("distributed: " + layout.distributed + "\n", "dry.yaml");
  const std::vector<Batch> batches = batches_of(layout);
  engine::DryHost host{rank, layout.world, [&](const Setup&) { return meta_units(layout.model); }};
  host.batches = [&](const DeviceMesh&) { return std::span<const Batch>(batches); };
  const engine::DryStep step = engine::dry_step(configuration, plugins_of_layouts(), host);
  return step.computed.peak(step.begin);
}

// Within 1 % with AVX-512. Narrower kernels keep other temporary tensors than a dry step records.
void compare_layouts(const char* model) {
  std::mt19937 random(7);
  int within_2_percent = 0;
  std::set<std::string> tried;
  while (tried.size() < 30) {
    const RandomLayout layout = random_layout(random, model);
    const std::string name = layout.distributed + " rows " + std::to_string(layout.rows) + " microbatches " +
                             std::to_string(layout.microbatches);
    if (!tried.insert(name + std::to_string(layout.world)).second) continue;
    double predicted = 0, real = 0;  // sums over the ranks
    for (const int64_t peak : real_peaks(layout)) real += static_cast<double>(peak);
    for (int rank = 0; rank < layout.world; ++rank)
      predicted += static_cast<double>(predicted_peak(layout, rank));
    within_2_percent += std::abs(predicted / real - 1) <= 0.02 ? 1 : 0;
    EXPECT_NEAR(predicted / real, 1, 0.03)
        << name << ", " << layout.world << " ranks: " << predicted << " and " << real;
  }
  EXPECT_GE(within_2_percent, 28);
}

TEST(PredictedMemory, IsThePeakOfARunForRandomLayouts) {
  compare_layouts(kDenseModel);
}

TEST(PredictedMemory, IsThePeakOfARunForRandomLayoutsOfAMixture) {
  compare_layouts(kMixtureModel);
}

}  // namespace
}  // namespace heddle
