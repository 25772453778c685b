// Every rank of a dry world requests the same collectives as that rank in a real run.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "heddle/engine/engine.h"
#include "heddle/transport/threads.h"
#include "lib/transport/traced.h"
#include "tests/main/with_all.h"

namespace heddle {
namespace {

HEDDLE_WITH_ALL("DryAgainstReal.Pipelines");

using Calls = std::vector<std::string>;

constexpr int kRanks = 8;
constexpr int64_t kRows = 8;
constexpr const char* kModel =
    "{model_type: llama, vocab_size: 37, hidden_size: 32, intermediate_size: 44, num_hidden_layers: 9, "
    "num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 16, tie_word_embeddings: "
    "false}";

constexpr const char* kTied =
    "{model_type: llama, vocab_size: 37, hidden_size: 32, intermediate_size: 44, num_hidden_layers: 5, "
    "num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 16, tie_word_embeddings: "
    "true}";

constexpr const char* kMixture =
    "{model_type: qwen3_moe, vocab_size: 37, hidden_size: 32, intermediate_size: 44, num_hidden_layers: 2, "
    "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8, max_position_embeddings: 16, num_experts: "
    "8, "
    "num_experts_per_tok: 2, moe_intermediate_size: 6, router_aux_loss_type: global}";

// Three heads in one group, shared by two ranks.
constexpr const char* kMixer =
    "{model_type: qwen3_5_text, vocab_size: 37, hidden_size: 32, intermediate_size: 44, num_hidden_layers: "
    "2, "
    "layer_types: [linear_attention, full_attention], num_attention_heads: 4, num_key_value_heads: 2, "
    "head_dim: "
    "8, linear_num_key_heads: 1, linear_num_value_heads: 3, linear_key_head_dim: 6, linear_value_head_dim: "
    "5, "
    "linear_conv_kernel_dim: 3}";

constexpr const char* kSparse =
    "{model_type: glm_moe_dsa, vocab_size: 37, hidden_size: 32, intermediate_size: 44, num_hidden_layers: 2, "
    "num_attention_heads: 2, num_key_value_heads: 2, kv_lora_rank: 8, q_lora_rank: 12, qk_nope_head_dim: 6, "
    "qk_rope_head_dim: 8, v_head_dim: 9, index_head_dim: 8, index_n_heads: 16, index_topk: 3, "
    "n_routed_experts: "
    "4, num_experts_per_tok: 2, moe_intermediate_size: 6, mlp_layer_types: [dense, sparse]}";

// Sequences of 7 tokens, which sequence parallelism cannot split evenly.
std::vector<Batch> tokens() {
  Batch batch;
  batch.tokens = at::arange(kRows * 7).view({kRows, 7}).remainder(37);
  batch.labels = (batch.tokens * 3 + 1).remainder(37);
  return {batch};
}

struct Run {
  Run(const std::string& distributed, const char* of)
      : configuration(config::read_text("distributed:\n" + distributed, "dry.yaml")),
        plugins({HEDDLE_BINARY_DIR "/plugins"}),
        model(engine::read_model(config::read_text(of, "config.json"), plugins)),
        batches(tokens()) {}
  Node configuration;
  PluginRegistry plugins;
  std::shared_ptr<const ModelSpec> model;
  std::vector<Batch> batches;
  Units units() const { return model->make_units(at::TensorOptions(at::kFloat).device(at::kMeta)); }
};

Calls real_calls(const std::string& distributed, const char* model, Rendezvous& rendezvous) {
  Run run(distributed, model);
  CallLog log;
  const std::unique_ptr<Rendezvous> traced = mesh::traced(rendezvous, log);
  engine::Model built = engine::model(run.configuration, run.plugins,
                                      {*traced, [&](const Setup&) { return run.units(); }, {}, 1, {}});
  Step step(built.stages, built.mesh, {});
  log.open(true);
  step.run(run.batches, 1e-3, 0.1);
  log.open(false);
  step.settle();
  std::vector<TracedCall> calls = log.take();
  std::sort(calls.begin(), calls.end(),
            [](const TracedCall& a, const TracedCall& b) { return a.posted < b.posted; });
  Calls out;
  for (const TracedCall& call : calls) out.push_back(call.name + " " + std::to_string(call.bytes));
  return out;
}

Calls dry_calls(const std::string& distributed, const char* model, int rank) {
  Run run(distributed, model);
  engine::DryHost host{rank, kRanks, [&](const Setup&) { return run.units(); }};
  host.batches = [&](const DeviceMesh&) { return std::span<const Batch>(run.batches); };
  Calls out;
  for (const DryEntry& entry : engine::dry_step(run.configuration, run.plugins, host).step)
    out.push_back(std::string(mesh::name_of(entry.operation)) + " " + entry.group + " " +
                  std::to_string(entry.bytes));
  return out;
}

void expect_equal(const std::string& distributed, const char* model = kModel) {
  SCOPED_TRACE(distributed);
  std::vector<Calls> real(kRanks);
  ThreadWorld::run(kRanks, [&](Rendezvous& rendezvous) {
    real[rendezvous.rank()] = real_calls(distributed, model, rendezvous);
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    const Calls dry = dry_calls(distributed, model, rank);
    EXPECT_GT(dry.size(), 3u);
    EXPECT_EQ(dry, real[rank]) << "rank " << rank;
  }
}

TEST(DryAgainstReal, Fsdp2) {
  expect_equal("  strategy: fsdp2\n  tp_size: 2\n");
  expect_equal("  strategy: fsdp2\n  dp_replicate_size: 2\n  reshard_after_forward: true\n");
  expect_equal("  strategy: fsdp2\n  tp_size: 2\n  sequence_parallel: true\n");
}

TEST(DryAgainstReal, Ddp) {
  expect_equal("  strategy: ddp\n  tp_size: 2\n");
}

TEST(DryAgainstReal, Megatron) {
  expect_equal("  strategy: megatron\n  tp_size: 2\n  use_distributed_optimizer: true\n");
  expect_equal("  strategy: megatron\n  overlap_grad_reduce: true\n");
}

TEST(DryAgainstReal, MegatronFsdp) {
  for (const char* split : {"1", "2", "3"})
    expect_equal(std::string("  strategy: megatron_fsdp\n  zero_dp_strategy: ") + split + "\n");
}

TEST(DryAgainstReal, Pipelines) {
  for (const char* strategy : {"fsdp2", "ddp", "megatron"})
    for (const char* schedule : {"1f1b", "zb1p", "interleaved1f1b", "zbvzerobubble"})
      expect_equal(std::string("  strategy: ") + strategy +
                   "\n  tp_size: 2\n  pp_size: 2\n  pipeline: {pp_schedule: " + schedule + "}\n");
  for (const char* schedule : {"interleavedzerobubble", "vmin"})
    expect_equal(std::string("  strategy: fsdp2\n  pp_size: 4\n  pipeline: {pp_schedule: ") + schedule +
                 "}\n");
  expect_equal(
      "  strategy: fsdp2\n  tp_size: 2\n  pp_size: 2\n"
      "  pipeline: {pp_schedule: zb2p, pp_post_validation: true}\n");
}

// Pipeline stages with tied embeddings, whose gradients are summed at the end of the step.
TEST(DryAgainstReal, TiedStages) {
  for (const char* strategy : {"fsdp2", "ddp"})
    for (const char* schedule : {"1f1b", "zbvzerobubble"})
      expect_equal(std::string("  strategy: ") + strategy +
                       "\n  tp_size: 2\n  pp_size: 2\n  pipeline: {pp_schedule: " + schedule + "}\n",
                   kTied);
}

TEST(DryAgainstReal, ContextParallel) {
  for (const char* method : {"allgather", "ring", "ulysses"})
    for (const char* model : {kModel, kMixer, kSparse})
      expect_equal(std::string("  strategy: fsdp2\n  cp_size: 2\n  context: {method: ") + method + "}\n",
                   model);
}

// Expert loads are all-reduced in every microbatch.
TEST(DryAgainstReal, Mixtures) {
  for (const char* strategy : {"fsdp2", "ddp", "megatron_fsdp"})
    expect_equal(std::string("  strategy: ") + strategy + "\n", kMixture);
  expect_equal("  strategy: fsdp2\n  pp_size: 2\n  pipeline: {pp_schedule: 1f1b}\n", kMixture);
}

// Meta tensors have no token counts to exchange, so the list has only the collectives of tokens.
TEST(DryAgainstReal, ExpertsInPartsAreGatheredAndSummed) {
  const Calls calls = dry_calls("  strategy: fsdp2\n  ep_size: 2\n  etp_size: 2\n", kMixture, 3);
  const auto count = [&](const std::string& what) {
    return std::count_if(calls.begin(), calls.end(),
                         [&](const std::string& call) { return call.rfind(what, 0) == 0; });
  };
  // Per layer, forward and backward: tokens, choices, weights, and outputs.
  EXPECT_EQ(count("all_gather etp "), 2 * (3 + 1));
  EXPECT_EQ(count("reduce_scatter etp "), 2 * (1 + 2));
}

TEST(DryAgainstReal, ActivationCheckpointing) {
  for (const char* what : {"true", "selective"})
    expect_equal(std::string("  strategy: fsdp2\n  tp_size: 2\n  activation_checkpointing: ") + what + "\n");
}

TEST(DryAgainstReal, SequenceParallelStagesHandOnPartsOfTheRows) {
  expect_equal(
      "  strategy: fsdp2\n  tp_size: 2\n  sequence_parallel: true\n  pp_size: 2\n"
      "  pipeline: {pp_schedule: interleaved1f1b}\n");
}

}  // namespace
}  // namespace heddle
