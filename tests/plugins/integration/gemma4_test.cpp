// Gemma 4 and Muse Glimmer: spellings of their keys, names of tensors in files, and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "built_plugins.h"
#include "heddle/config/node.h"
#include "heddle/engine/engine.h"
#include "thrown.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const ModelSpec> gemma4_of(const std::string& keys, const std::string& type = "gemma4_text") {
  const std::string text = "{model_type: " + type +
                           ", vocab_size: 32, hidden_size: 16, intermediate_size: 8, " +
                           "num_attention_heads: 4, num_key_value_heads: 2, head_dim: 4, " + keys + "}";
  return engine::read_model(config::read_text(text, "run.yaml"), tests::built_plugins(),
                            UnknownKeys::refused);
}

const std::string kThree =
    "num_hidden_layers: 3, hidden_size_per_layer_input: 0, layer_types: [sliding_attention, full_attention, "
    "full_attention], ";

// Keys of the whole model, and keys that transformers writes per layer.
TEST(Gemma4, ReadsWidthsInBothSpellings) {
  const auto published =
      gemma4_of(kThree + "attention_k_eq_v: true, global_head_dim: 8, num_global_key_value_heads: 1");
  const auto by_layer = gemma4_of(
      kThree +
      "attention_k_eq_v: true, per_layer_config: {'01': {head_dim: 8, num_key_value_heads: 1}, '2': "
      "{num_key_value_heads: 1, head_dim: 8}}");
  EXPECT_EQ(published->signature(), by_layer->signature());
  EXPECT_EQ(published->signature().at("global_head_dim"), "8");
  // A layer without an entry has the common widths.
  EXPECT_EQ(gemma4_of(kThree + "per_layer_config: {}")->signature().at("global_head_dim"), "4");
}

// The last layer uses full attention, whatever the number of layers.
TEST(Gemma4, LaysOutLayersByDefault) {
  const auto names = [](const ModelSpec& model) {
    std::string sizes;
    for (const auto& unit : model.make_units(at::TensorOptions(at::kMeta)))
      for (const ParameterSlot& slot : unit->parameters())
        if (slot.name.ends_with("k_norm.weight")) sizes += std::to_string(slot.tensor->numel()) + " ";
    return sizes;
  };
  const std::string keys = "hidden_size_per_layer_input: 0, global_head_dim: 8, num_hidden_layers: ";
  EXPECT_EQ(names(*gemma4_of(keys + "8")), "4 4 4 4 4 8 4 8 ");
}

TEST(Gemma4, NamesTensorsAsPublished) {
  const auto model = gemma4_of(
      "num_hidden_layers: 4, layer_types: [sliding_attention, full_attention, sliding_attention, "
      "full_attention], num_kv_shared_layers: 2, hidden_size_per_layer_input: 6, vocab_size_per_layer_input: "
      "32, global_head_dim: 8, enable_moe_block: true, num_experts: 4, top_k_experts: 2, "
      "moe_intermediate_size: 3");
  const auto name = [&](const std::string& parameter, std::vector<int64_t> shape) {
    const StoredParts parts = model->stored(parameter, shape);
    return parts.empty() ? parameter : parts.front().tensor;
  };
  EXPECT_EQ(name("model.layers.1.moe.gate.weight", {4, 16}), "model.layers.1.router.proj.weight");
  EXPECT_EQ(name("model.layers.1.moe.gate.per_expert_scale", {4}), "model.layers.1.router.per_expert_scale");
  EXPECT_EQ(name("model.layers.1.moe.experts.gate_up_proj", {4, 2, 3, 16}),
            "model.layers.1.experts.gate_up_proj");
  EXPECT_EQ(name("model.layers.1.moe.pre_feedforward_layernorm_2.weight", {16}),
            "model.layers.1.pre_feedforward_layernorm_2.weight");
  EXPECT_EQ(name("model.layer_inputs.embed_tokens_per_layer.weight", {32, 24}),
            "model.embed_tokens_per_layer.weight");
  EXPECT_EQ(name("model.layers.3.layer_input.per_layer_projection.weight", {16, 6}),
            "model.layers.3.per_layer_projection.weight");
  EXPECT_THAT(model->other_names("model.layers.0.layer_scalar"),
              ::testing::Contains("model.language_model.layers.0.layer_scalar"));
  EXPECT_TRUE(model->passes_over("model.language_model.layers.2.self_attn.k_proj.weight"));
  EXPECT_FALSE(model->passes_over("model.language_model.layers.1.self_attn.k_proj.weight"));
  EXPECT_TRUE(model->passes_over("model.vision_tower.layers.1.self_attn.k_proj.weight"));
}

TEST(MuseGlimmer, WritesTheWholeModelsKeys) {
  const std::string text =
      "{model_type: muse_glimmer, tie_word_embeddings: false, vision_config: {hidden_size: 8}, text_config: "
      "{vocab_size: 32, hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: "
      "2}}";
  const auto model =
      engine::read_model(config::read_text(text, "run.yaml"), tests::built_plugins(), UnknownKeys::refused);
  const Node written = config::read_text(model->config_json("float32"), "config.json");
  EXPECT_EQ(written.find("model_type")->as_text(), "muse_glimmer");
  EXPECT_EQ(written.find("text_config")->find("model_type")->as_text(), "muse_glimmer_text");
  EXPECT_EQ(written.find("vision_config")->find("hidden_size")->as_integer(), 8);
  EXPECT_EQ(
      model->stored("model.layers.0.self_attn.g_proj.weight", std::vector<int64_t>{512, 16}).at(0).tensor,
      "model.language_model.layers.0.self_attn.gate_proj.weight");
}

TEST(MuseGlimmer, RefusesTheOlderSpellingOfItsKeys) {
  const Node keys = config::read_text("{model_type: muse_glimmer, num_hidden_layers: 2}", "config.json");
  EXPECT_THAT(
      tests::thrown_by([&] { engine::read_model(keys, tests::built_plugins(), UnknownKeys::passed_over); }),
      HasSubstr("text_config is missing: the older spelling without it is not built"));
}

struct Gemma4Refusal {
  const char* name;
  std::string type, keys, says;
};
class Gemma4Refusals : public ::testing::TestWithParam<Gemma4Refusal> {};

TEST_P(Gemma4Refusals, SayWhy) {
  const Gemma4Refusal& one = GetParam();
  EXPECT_THAT(tests::thrown_by([&] { gemma4_of(one.keys, one.type); }), HasSubstr(one.says));
}

const std::string kGemma = "gemma4_text";
const Gemma4Refusal kGemma4Refusals[] = {
    {"bidirectional", kGemma, kThree + "use_bidirectional_attention: all", "use_bidirectional_attention"},
    {"last", kGemma,
     "num_hidden_layers: 2, hidden_size_per_layer_input: 0, layer_types: [full_attention, sliding_attention]",
     "layer_types: the last layer must be full_attention, got 'sliding_attention', which transformers "
     "replaces"},
    {"heads", kGemma, kThree + "attention_k_eq_v: true, num_global_key_value_heads: 3",
     "num_attention_heads 4 is not a multiple of the 3 key heads of full-attention layers"},
    {"widths", kGemma, kThree + "per_layer_config: {'1': {head_dim: 8}, '2': {head_dim: 6}}",
     "layer 2 has different widths than other layers of its type"},
    {"sliding", kGemma, kThree + "per_layer_config: {'0': {head_dim: 8}}",
     "layer 0 has different widths than other layers of its type"},
    {"layer", kGemma, kThree + "per_layer_config: {'7': {head_dim: 8}}",
     "a key is not the number of a layer"},
    {"other", kGemma, kThree + "per_layer_config: {'1': {sliding_window: 8}}",
     "the key sliding_window of a single layer is not built"},
    {"ungated", kGemma,
     kThree + "per_layer_config: {'1': {num_key_value_heads: 1}, '2': {num_key_value_heads: 1}}",
     "num_key_value_heads of a single layer needs attention_k_eq_v: true"},
    {"all_shared", kGemma, kThree + "num_kv_shared_layers: 3",
     "num_kv_shared_layers 3: all 3 layers would share keys and none would have its own"},
    {"no_source", kGemma, kThree + "num_kv_shared_layers: 2",
     "num_kv_shared_layers 2: layer 1 has no earlier layer of its type with its own keys"},
    {"inputs", kGemma, "num_hidden_layers: 1, hidden_size_per_layer_input: 4, vocab_size_per_layer_input: 31",
     "vocab_size_per_layer_input 31 is less than vocab_size 32, so some tokens have no per-layer inputs"},
    {"experts", kGemma, kThree + "enable_moe_block: true, num_experts: 4",
     "enable_moe_block: true needs num_experts, top_k_experts and moe_intermediate_size"},
    {"top_k", kGemma,
     kThree + "enable_moe_block: true, num_experts: 4, top_k_experts: 5, moe_intermediate_size: 3",
     "top_k_experts 5 is more than num_experts 4"},
    {"activation", kGemma,
     kThree + "enable_moe_block: true, num_experts: 4, top_k_experts: 2, moe_intermediate_size: 3, "
              "hidden_activation: relu",
     "hidden_activation 'relu' of experts is not built"},
    {"rope_type", kGemma, kThree + "rope_parameters: {full_attention: {rope_type: longrope}}",
     "rope type 'longrope' is not built; known: default, linear, llama3, yarn, proportional"},
    {"rope_part", kGemma,
     kThree + "rope_parameters: {full_attention: {rope_type: proportional, partial_rotary_factor: 1.5}}",
     "expected a number from 0 to 1, got 1.5"},
    {"rope_flat", kGemma, kThree + "rope_parameters: {rope_type: default, rope_theta: 100}",
     "expected the keys full_attention and sliding_attention, got the key rope_type"},
    {"rope_theta", kGemma, kThree + "rope_theta: 100", "only rope_theta: null is built, got 100"},
    {"unified_experts", "gemma4_unified_text", "num_hidden_layers: 2, enable_moe_block: true",
     "unknown key 'enable_moe_block'"}};

INSTANTIATE_TEST_SUITE_P(Of, Gemma4Refusals, ::testing::ValuesIn(kGemma4Refusals),
                         [](const auto& info) { return std::string(info.param.name); });

class MuseRefusals : public ::testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(MuseRefusals, SayWhy) {
  const std::string text =
      "{model_type: muse_glimmer, text_config: {vocab_size: 32, hidden_size: 16, num_hidden_layers: 2, "
      "num_attention_heads: 4, num_key_value_heads: 2, " +
      GetParam().first + "}}";
  EXPECT_THAT(tests::thrown_by([&] {
                engine::read_model(config::read_text(text, "run.yaml"), tests::built_plugins(),
                                   UnknownKeys::refused);
              }),
              HasSubstr(GetParam().second));
}

INSTANTIATE_TEST_SUITE_P(
    Of, MuseRefusals,
    ::testing::Values(std::pair("layer_rope_theta: [0]",
                                "expected a list with one number for each of 2 layers"),
                      std::pair("layer_rope_theta: [0, 500]",
                                "expected rope_theta 10000.0, or 0 for no rotation, got 500")));

}  // namespace
}  // namespace heddle
