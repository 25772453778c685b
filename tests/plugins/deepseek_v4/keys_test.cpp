// DeepSeek-V4: spellings of its keys, and names of tensors in files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "built_plugins.h"
#include "heddle/config/node.h"
#include "heddle/engine/engine.h"

namespace heddle {
namespace {

using ::testing::Contains;

const std::string kV4 =
    "{model_type: deepseek_v4, vocab_size: 32, hidden_size: 16, num_hidden_layers: 3, num_attention_heads: "
    "4, "
    "head_dim: 8, q_lora_rank: 6, o_groups: 2, o_lora_rank: 3, index_n_heads: 2, index_head_dim: 8, "
    "moe_intermediate_size: 5, n_routed_experts: 4, num_experts_per_tok: 2, qk_rope_head_dim: 4";

std::shared_ptr<const ModelSpec> v4_of(const std::string& keys) {
  Node all = config::read_text(kV4 + "}", "run.yaml");
  const Node more = config::read_text("{" + keys + "}", "run.yaml");
  for (const auto& [key, value] : more.entries()) all = all.with(key, value);
  return engine::read_model(all, tests::built_plugins(), UnknownKeys::refused);
}

// The published spelling, and that of transformers.
TEST(DeepseekV4, ReadsBothSpellings) {
  const auto published = v4_of(
      "compress_ratios: [0, 4, 128, 4], num_hash_layers: 1, rope_scaling: {type: yarn, factor: 16, "
      "original_max_position_embeddings: 64}");
  const auto written = v4_of(
      "layer_types: [sliding_attention, compressed_sparse_attention, heavily_compressed_attention], "
      "mlp_layer_types: [hash_moe, moe, moe], rope_parameters: {main: {rope_type: default, rope_theta: "
      "10000, "
      "partial_rotary_factor: 0.5}, compress: {rope_type: yarn, rope_theta: 160000, factor: 16, "
      "attention_factor: 1.0, partial_rotary_factor: 0.5, original_max_position_embeddings: 64}}");
  EXPECT_EQ(published->signature(), written->signature());
}

TEST(DeepseekV4, RoundTripsItsKeys) {
  const auto model = v4_of("compress_rates: {compressed_sparse_attention: 2}, compress_rate_hca: 6");
  const Node config = config::read_text(model->config_json("float32"), "config.json");
  EXPECT_EQ(config.find("compress_rates")->find("heavily_compressed_attention")->as_integer(), 6);
  EXPECT_EQ(config.find("rope_parameters")->find("compress")->find("rope_theta")->as_real(), 160000);
  const auto again = engine::read_model(config, tests::built_plugins(), UnknownKeys::passed_over);
  EXPECT_EQ(again->signature(), model->signature());
}

TEST(DeepseekV4, NamesTensorsAsPublished) {
  const auto model = v4_of("compress_ratios: [0, 4, 128], num_hash_layers: 1");
  const auto name = [&](const std::string& parameter, std::vector<int64_t> shape) {
    const StoredParts parts = model->stored(parameter, shape);
    return parts.empty() ? parameter : parts.front().tensor;
  };
  const std::string layer = "model.layers.1.";
  EXPECT_EQ(name("model.embed_tokens.weight", {32, 16}), "embed.weight");
  EXPECT_EQ(name("lm_head.weight", {32, 16}), "head.weight");
  EXPECT_EQ(name("model.hc_head.hc_fn", {4, 64}), "hc_head_fn");
  EXPECT_EQ(name(layer + "attn_hc.scale", {3}), "layers.1.hc_attn_scale");
  EXPECT_EQ(name(layer + "self_attn.sinks", {4}), "layers.1.attn.attn_sink");
  EXPECT_EQ(name(layer + "self_attn.compressor.position_bias", {4, 16}), "layers.1.attn.compressor.ape");
  EXPECT_EQ(name(layer + "self_attn.compressor.indexer.kv_norm.weight", {8}),
            "layers.1.attn.indexer.compressor.norm.weight");
  EXPECT_EQ(name(layer + "self_attn.compressor.indexer.scorer.weights_proj.weight", {2, 16}),
            "layers.1.attn.indexer.weights_proj.weight");
  EXPECT_EQ(name(layer + "mlp.gate.e_score_correction_bias", {4}), "layers.1.ffn.gate.bias");
  EXPECT_EQ(name("model.layers.0.mlp.gate.tid2eid", {32, 2}), "layers.0.ffn.gate.tid2eid");
  EXPECT_EQ(name(layer + "mlp.experts.down_proj", {4, 16, 5}), "layers.1.ffn.experts.0.w2.weight");
  EXPECT_THAT(model->other_names("layers.1.attn.kv_norm.weight"),
              Contains("model.layers.1.attn.norm.weight"));
  EXPECT_THAT(model->other_names("hc_head_fn"), Contains("model.hc_head.hc_fn"));
  EXPECT_TRUE(model->passes_over("mtp.0.attn.wq_a.weight"));
}

// There is no indexer without a sparse layer.
TEST(DeepseekV4, AcceptsAnyIndexerWidthWithoutAnIndexer) {
  EXPECT_NO_THROW(v4_of("index_head_dim: 2, compress_ratios: [0, 128, 0]"));
}

}  // namespace
}  // namespace heddle
