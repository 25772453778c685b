// DeepSeek-V4: the spellings of its keys, names of tensors in files, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "built_plugins.h"
#include "heddle/config/node.h"
#include "heddle/engine/engine.h"
#include "thrown.h"

namespace heddle {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

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

// As published, and as transformers writes it.
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

TEST(DeepseekV4, WritesWhatItReads) {
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

// Without a sparse layer there is no indexer.
TEST(DeepseekV4, TakesAnyWidthOfAnIndexerThatIsNotThere) {
  EXPECT_NO_THROW(v4_of("index_head_dim: 2, compress_ratios: [0, 128, 0]"));
}

struct V4Refusal {
  const char* name;
  std::string keys, says;
};
class DeepseekV4Refusals : public ::testing::TestWithParam<V4Refusal> {};

TEST_P(DeepseekV4Refusals, SayWhy) {
  EXPECT_THAT(tests::thrown_by([] { v4_of(GetParam().keys); }), HasSubstr(GetParam().says));
}

const V4Refusal kV4Refusals[] = {
    {"heads", "num_key_value_heads: 2", "num_key_value_heads is 2, and all heads share one of keys"},
    {"groups", "o_groups: 3", "o_groups 3 do not divide num_attention_heads 4"},
    {"experts", "num_experts_per_tok: 5", "num_experts_per_tok 5 is more than n_routed_experts 4"},
    {"local_experts", "num_local_experts: 8",
     "expected 4, the value of n_routed_experts, of which it is another name, got 8"},
    {"two_widths", "intermediate_size: 7",
     "expected 5, the value of moe_intermediate_size, of which it is another name, got 7"},
    {"one_expert", "num_experts_per_tok: 1", "expected 2 to 65536, got 1"},
    {"limit", "swiglu_limit: 0", "swiglu_limit"},
    {"scores", "scoring_func: softmax", "expected one of sqrtsoftplus, sigmoid"},
    {"topk_prob", "norm_topk_prob: false", "only norm_topk_prob: true is built, got false"},
    {"bias", "attention_bias: true", "only attention_bias: false is built, got true"},
    {"jitter", "router_jitter_noise: 0.1", "only router_jitter_noise: 0.0 is built, got 0.1"},
    {"shared", "n_shared_experts: 2", "only n_shared_experts: 1 is built, got 2"},
    {"type", "layer_types: [full_attention, sliding_attention, sliding_attention]",
     "a layer of type 'full_attention' is not built; known: sliding_attention, compressed_sparse_attention, "
     "heavily_compressed_attention"},
    {"few_types", "layer_types: [sliding_attention]", "expected 3 words, one for each layer, got 1"},
    {"ratio", "compress_ratios: [0, 4, 64]", "expected 0, 4 or 128, got 64"},
    {"few_ratios", "compress_ratios: [0, 4]", "expected 3 numbers, one for each layer, got 2"},
    {"rates", "compress_rates: {heavy: 3}",
     "expected the keys compressed_sparse_attention and "
     "heavily_compressed_attention, got 'heavy'"},
    {"moe_type", "mlp_layer_types: [dense, moe, moe]",
     "a layer of type 'dense' is not built; known: hash_moe, moe"},
    {"part",
     "rope_parameters: {main: {rope_type: default, partial_rotary_factor: 0.5}, compress: {rope_type: "
     "default, partial_rotary_factor: 0.25}}",
     "expected the partial_rotary_factor of main, which both rotary embeddings have"},
    {"odd_part", "partial_rotary_factor: 0.4",
     "run.yaml:1 partial_rotary_factor: of heads of 8 an even number must be rotated"},
    {"odd_width", "qk_rope_head_dim: 3",
     "run.yaml:1 qk_rope_head_dim: expected an even number from 2 to head_dim, 8, got 3"},
    {"wide", "qk_rope_head_dim: 10", "expected an even number from 2 to head_dim, 8, got 10"},
    {"default_part", "qk_rope_head_dim: null, head_dim: 24",
     "run.yaml:1 head_dim: of heads of 24 an even number must be rotated, from 2 on, and deepseek_v4 rotates "
     "0.125 of them by default"},
    {"index_head", "index_head_dim: 2, compress_ratios: [4, 4, 0]",
     "run.yaml:1 index_head_dim: index_head_dim 2 is less than the 4 numbers of a head that are rotated"}};

INSTANTIATE_TEST_SUITE_P(Of, DeepseekV4Refusals, ::testing::ValuesIn(kV4Refusals),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace heddle
