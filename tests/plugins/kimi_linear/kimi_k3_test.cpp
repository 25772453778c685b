// Kimi K3: location of its text model, default layers, and names of tensors in files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "built_plugins.h"
#include "heddle/config/node.h"
#include "heddle/engine/engine.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

const std::string kK3Sizes =
    "vocab_size: 32, hidden_size: 16, intermediate_size: 8, num_attention_heads: 4, q_lora_rank: 6, "
    "kv_lora_rank: 5, qk_nope_head_dim: 4, qk_rope_head_dim: 2, v_head_dim: 3, num_experts: 4, "
    "num_experts_per_token: 2, moe_intermediate_size: 8, routed_expert_hidden_size: 6, ";
const std::string kK3Delta = "head_dim: 4, num_heads: 3, short_conv_kernel_size: 3";
const std::string kK3Two = kK3Sizes + "num_hidden_layers: 2, attn_res_block_size: 1, linear_attn_config: {" +
                           kK3Delta + ", kda_layers: [1], full_attn_layers: [2]";

std::shared_ptr<const ModelSpec> k3_of(const std::string& keys) {
  return engine::read_model(config::read_text("{" + keys + "}", "run.yaml"), tests::built_plugins(),
                            UnknownKeys::refused);
}

std::vector<std::string> layers_with(const ModelSpec& model, const std::string& ending) {
  std::vector<std::string> out;
  for (const auto& unit : model.make_units(at::TensorOptions(at::kMeta)))
    for (const ParameterSlot& slot : unit->parameters())
      if (slot.name.ends_with(ending)) out.push_back(slot.name.substr(0, slot.name.size() - ending.size()));
  return out;
}

// Keys of the text model alone, in text_config, and as Kimi Linear with K3's architecture.
TEST(KimiK3, IsReadFromEveryPlace) {
  const auto flat = k3_of("model_type: kimi_k3, " + kK3Two + "}");
  const auto within = k3_of("model_type: kimi_k3, text_config: {model_type: kimi_linear, " + kK3Two + "}}");
  const auto text = k3_of("model_type: kimi_linear, architectures: [KimiK3ForCausalLM], " + kK3Two + "}");
  EXPECT_EQ(flat->signature(), within->signature());
  EXPECT_EQ(flat->signature(), text->signature());
  EXPECT_EQ(flat->facts().model_type, "kimi_linear");
  EXPECT_THAT(flat->config_json("float32"), HasSubstr("KimiK3ForCausalLM"));
}

TEST(KimiK3, LaysOutLayersByDefault) {
  const auto model = k3_of("model_type: kimi_k3, " + kK3Sizes +
                           "num_hidden_layers: 6, first_k_dense_replace: 1, moe_layer_freq: 2");
  EXPECT_EQ(layers_with(*model, ".self_attn.g_proj.weight"),
            (std::vector<std::string>{"model.layers.3", "model.layers.5"}));
  EXPECT_EQ(layers_with(*model, ".mlp.latent_norm.weight"),
            (std::vector<std::string>{"model.layers.2", "model.layers.4"}));
  EXPECT_EQ(layers_with(*model, ".linear_attn.g_proj.weight").size(), 4u);
  // If linear_attn_config is set, use_full_rank_gate defaults to false.
  EXPECT_EQ(
      layers_with(*k3_of("model_type: kimi_k3, " + kK3Two + "}"), ".linear_attn.g_a_proj.weight").size(), 1u);
}

TEST(KimiK3, NamesTensorsAsPublished) {
  const auto model = k3_of("model_type: kimi_k3, " + kK3Two + "}");
  const auto stored = [&](const std::string& parameter, std::vector<int64_t> shape) {
    const StoredParts parts = model->stored(parameter, shape);
    return parts.empty() ? parameter : parts.front().tensor;
  };
  const std::string layer = "model.layers.1.", there = "language_model.model.layers.1.";
  const std::string moe = there + "block_sparse_moe.";
  EXPECT_EQ(stored("lm_head.weight", {32, 16}), "language_model.lm_head.weight");
  EXPECT_EQ(stored("model.output_res.proj.weight", {1, 16}),
            "language_model.model.output_attn_res_proj.weight");
  EXPECT_EQ(stored(layer + "attn_res.norm.weight", {16}), there + "self_attention_res_norm.weight");
  EXPECT_EQ(stored(layer + "mlp_res.proj.weight", {1, 16}), there + "mlp_res_proj.weight");
  EXPECT_EQ(stored(layer + "linear_attn.A_log", {128}), there + "self_attn.A_log");
  EXPECT_EQ(stored(layer + "mlp.fc1_latent_proj.weight", {6, 16}), moe + "routed_expert_down_proj.weight");
  EXPECT_EQ(stored(layer + "mlp.fc2_latent_proj.weight", {16, 6}), moe + "routed_expert_up_proj.weight");
  EXPECT_EQ(stored(layer + "mlp.latent_norm.weight", {6}), moe + "routed_expert_norm.weight");
  EXPECT_EQ(stored(layer + "mlp.gate.e_score_correction_bias", {4}), moe + "gate.e_score_correction_bias");
  EXPECT_EQ(stored(layer + "mlp.experts.down_proj", {4, 6, 8}), moe + "experts.0.w2.weight");
  EXPECT_EQ(model->other_names("language_model.model.norm.weight"),
            (std::vector<std::string>{"model.norm.weight"}));
  EXPECT_TRUE(model->passes_over("vision_tower.patch_embed.proj.weight"));
  EXPECT_TRUE(model->passes_over("mm_projector.proj.0.weight"));
}

// Keys that have another meaning in Kimi Linear are listed too.
TEST(KimiK3, ListsItsOwnKeys) {
  std::map<std::string, std::string> help;
  for (const FieldInfo& field : tests::built_plugins().model("kimi_k3")->fields) help[field.key] = field.help;
  EXPECT_THAT(help["linear_attn_config"], HasSubstr("gate_lower_bound"));
  EXPECT_THAT(help["moe_layer_freq"], HasSubstr("first_k_dense_replace"));
  EXPECT_EQ(help.count("kv_lora_rank"), 0u);
}

}  // namespace
}  // namespace heddle
