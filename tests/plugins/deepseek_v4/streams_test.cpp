// Hyper-connections and routers with a token table train as on one rank, on every topology.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "heddle/decoder/family.h"
#include "plugins/topologies.h"
#include "tests/main/with_all.h"

namespace heddle::tests {
namespace {

HEDDLE_WITH_ALL("Streams.EqualOneRank");

decoder::Mixture hashed_experts() {
  decoder::Mixture out;
  out.router.experts = 8, out.router.table_tokens = 53;
  out.router.rule.score = model::RouterRule::Score::sqrt_softplus;
  out.router.rule.top_k = 3;
  out.router.rule.normalise = true, out.router.rule.scale = 1.5;
  out.width = 5, out.shared_width = 7;
  return out;
}

// An MLP, experts by table, experts by score: one layer per stage of four.
Training in_streams() {
  Training run = four_heads("llama", 3);
  // The first layer mixes equal streams, so gradients of their matrix are only rounding errors.
  run.make_optimizer = [] {
    AdamWConfig config;
    config.eps = 1e-3;
    return train::make_adamw(config);
  };
  decoder::Attention attention;
  attention.heads = 4, attention.kv_heads = 2, attention.head_dim = attention.rotation.dim = 6;
  decoder::Model model;
  model.vocabulary = 53, model.width = 14, model.init_std = 0.15;
  model.hyper_connections = {.streams = 3, .iterations = 4, .eps = 1e-4, .norm_eps = 1e-5};
  decoder::Mixture scored = hashed_experts();
  scored.router.table_tokens = 0;
  model.layers = {{attention, decoder::Mlp{.width = 23}},
                  {attention, hashed_experts()},
                  {attention, scored},
                  {attention, scored}};
  run.make_units = [model](int) {
    return decoder::make_spec({.model = model})->make_units(at::TensorOptions(at::kMeta).dtype(at::kFloat));
  };
  return run;
}

TEST(Streams, EqualOneRank) {
  expect_equal_on(in_streams(),
                  {"ddp dp2", "fsdp2 dp[2|3]", "fsdp2(reshard_after_forward: true) dp4 replicas2 full",
                   "megatron(use_distributed_optimizer: [true|false], bucket_size: 50) dp2",
                   "megatron_fsdp(zero_dp_strategy: [1|3]) dp2", "fsdp2 dp2 ep2(alltoall)",
                   "fsdp2 cp2(allgather)", "fsdp2 tp2", "fsdp2 pp2([1f1b|gpipe])",
                   "fsdp2 pp2(zbvzerobubble) selective", "fsdp2 dp2 pp2(interleaved1f1b) full"});
}

TEST(Streams, KeepTheirWeightsInFp32) {
  for (const auto& unit : in_streams().make_units(0))
    for (const ParameterSlot& slot : unit->parameters()) {
      if (slot.name.find("_hc") == std::string::npos && slot.name.find("hc_head") == std::string::npos)
        continue;
      EXPECT_EQ(slot.compute, at::kFloat) << slot.name;
      EXPECT_TRUE(slot.trainable()) << slot.name;
    }
}

}  // namespace
}  // namespace heddle::tests
