// Families of mixtures with a correction bias: both spellings of their keys, and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "built_plugins.h"
#include "heddle/config/node.h"
#include "heddle/engine/engine.h"
#include "thrown.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const ModelSpec> model_of(const std::string& type, const std::string& keys) {
  const std::string text = "{model_type: " + type + ", vocab_size: 32, hidden_size: 16, " + keys + "}";
  return engine::read_model(config::read_text(text, "run.yaml"), tests::built_plugins(),
                            UnknownKeys::refused);
}

std::map<std::string, std::string> signature_of(const std::string& type, const std::string& keys) {
  return model_of(type, keys)->signature();
}

const std::string kStep =
    "num_hidden_layers: 2, num_attention_heads: 4, head_dim: 4, moe_intermediate_size: 8, ";
const std::string kMimo =
    "num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 12, ";

// Published names with entries of an additional layer, and transformers' names.
TEST(MixtureFamilies, ReadStepInBothSpellings) {
  const std::string types = "layer_types: [full_attention, sliding_attention";
  const auto published = signature_of(
      "step3p5",
      kStep + types +
          ", full_attention], num_attention_groups: 2, moe_num_experts: 4, moe_top_k: 2, "
          "share_expert_dim: 6, attention_other_setting: {num_attention_heads: 6}, moe_layers_enum: '1', "
          "rope_theta: [5000, 100, 5000], partial_rotary_factors: [0.5, 1.0, 0.5], rope_scaling: {rope_type: "
          "linear, factor: 2}, yarn_only_types: [full_attention], use_rope_layers: [], swiglu_limits: [0.0, "
          "7, 0.0], num_nextn_predict_layers: 1");
  const auto newer = signature_of(
      "step3p5",
      kStep + types +
          "], num_key_value_heads: 2, n_routed_experts: 4, num_experts_per_tok: 2, share_expert_dims: 6, "
          "num_sliding_attention_heads: 6, mlp_layer_types: [dense, sparse], rope_parameters: "
          "{full_attention: {rope_type: linear, factor: 2, rope_theta: 5000, partial_rotary_factor: 0.5}, "
          "sliding_attention: {rope_type: default, rope_theta: 100}}, swiglu_limits: [0.0, 7], "
          "num_mtp_layers: 1");
  for (const auto& [key, value] : published)
    if (key != "yarn_only_types") {
      EXPECT_EQ(value, newer.at(key)) << key;
    }
}

TEST(MixtureFamilies, ReadMimoInBothSpellings) {
  EXPECT_EQ(signature_of("mimo_v2_flash", kMimo + "hybrid_layer_pattern: [0, 1], moe_layer_freq: [0, 1], "
                                                  "layernorm_epsilon: 1.0e-6, sliding_window_size: 4, "
                                                  "rope_theta: 5000, swa_rope_theta: 100, "
                                                  "partial_rotary_factor: 0.5, swa_num_key_value_heads: 4"),
            signature_of("mimo_v2_flash",
                         kMimo + "layer_types: [full_attention, sliding_attention], mlp_layer_types: [dense, "
                                 "sparse], rms_norm_eps: 1.0e-6, sliding_window: 5, rope_parameters: "
                                 "{full_attention: {rope_theta: 5000, partial_rotary_factor: 0.5}, "
                                 "sliding_attention: {rope_theta: 100, partial_rotary_factor: 0.5}}"));
}

// config.json of a model with random weights in the form that transformers reads: no null widths, and no
// score temperature that is not computed here.
TEST(ConfigOfRandomWeights, IsReadByTransformers) {
  const std::string heads = "num_hidden_layers: 1, num_attention_heads: 4, ";
  for (const char* type : {"falcon_h1", "ernie4_5_moe"})
    EXPECT_THAT(model_of(type, heads + "num_key_value_heads: 2")->config_json("float32"),
                HasSubstr("\"head_dim\": 4"))
        << type;
  const std::string mistral4 =
      model_of("mistral4", heads + "num_key_value_heads: null")->config_json("float32");
  EXPECT_THAT(mistral4, ::testing::Not(HasSubstr("mscale")));
  EXPECT_THAT(mistral4, HasSubstr("\"attention_factor\": 1.0"));
}

struct RefusedConfig {
  const char *name, *type;
  std::string keys, message;
};
std::ostream& operator<<(std::ostream& out, const RefusedConfig& refusal) {
  return out << refusal.name;
}

class MixtureRefusals : public ::testing::TestWithParam<RefusedConfig> {};

TEST_P(MixtureRefusals, SayWhatIsWrong) {
  const RefusedConfig& refusal = GetParam();
  EXPECT_THAT(tests::thrown_by([&] { model_of(refusal.type, refusal.keys); }), HasSubstr(refusal.message));
}

const std::string kSmall =
    "num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 4, ";
const std::string kTypes = "layer_types: [full_attention, sliding_attention], ";

const RefusedConfig kRefusals[] = {
    {"step_heads", "step3p5", kStep + kTypes + "num_attention_groups: 4, num_sliding_attention_heads: 6",
     "sliding_attention layers have 6 heads, which is not a multiple of num_attention_groups 4"},
    {"step_groups", "step3p5",
     kStep + kTypes + "num_attention_groups: 4, attention_other_setting: {num_attention_groups: 2}",
     "num_attention_groups of attention_other_setting must be 4"},
    {"step_two_heads", "step3p5",
     kStep + kTypes +
         "num_attention_groups: 2, num_sliding_attention_heads: 4, attention_other_setting: "
         "{num_attention_heads: 6}",
     "num_attention_heads 6 of attention_other_setting differs from num_sliding_attention_heads 4"},
    {"step_names", "step3p5", kStep + "num_attention_groups: 2, num_key_value_heads: 4",
     "num_attention_groups and num_key_value_heads are two names of one number"},
    {"step_experts", "step3p5", kStep + "num_attention_groups: 2, moe_num_experts: 4, n_routed_experts: 8",
     "are names of one number but differ: set only one of them"},
    {"step_rope", "step3p5", kStep + "num_attention_groups: 2, use_rope_layers: [true, false]",
     "use_rope_layers: layers without rotation are not supported by transformers"},
    {"step_theta", "step3p5", kStep + "num_attention_groups: 2, rope_theta: [100, 200]",
     "layers of type full_attention with different rotations are not built"},
    {"step_yarn", "step3p5", kStep + "num_attention_groups: 2, yarn_only_types: [sliding_attention]",
     "yarn_only_types: rope_scaling applies only to full_attention layers"},
    {"step_limits", "step3p5", kStep + "num_attention_groups: 2, swiglu_limits: [7]",
     "swiglu_limits has 1 numbers for 2 layers"},
    {"step_negative", "step3p5", kStep + "num_attention_groups: 2, swiglu_limits_shared: [7, -1]",
     "swiglu_limits_shared: expected numbers of at least 0"},
    {"step_enum", "step3p5", kStep + "num_attention_groups: 2, moe_layers_enum: '1;2'",
     "expected layer numbers separated by commas, got '1;2'"},
    {"step_top_k", "step3p5", kStep + "num_attention_groups: 2, moe_num_experts: 4, moe_top_k: 5",
     "5 experts per token are more than the 4 experts of a layer"},
    {"hy_width", "hy_v3", kSmall + "moe_intermediate_size: 8, expert_hidden_dim: 6",
     "expert_hidden_dim 6 and moe_intermediate_size 8 are two names of one width"},
    {"hy_dense", "hy_v3", kSmall + "first_k_dense_replace: 1, mlp_layer_types: [sparse, sparse]",
     "mlp_layer_types and first_k_dense_replace 1 disagree on the layers with experts"},
    {"hy_words", "hy_v3", kSmall + "mlp_layer_types: [dense, moe]",
     "mlp_layer_types: expected dense or sparse, got 'moe'"},
    {"hy_count", "hy_v3", kSmall + "mlp_layer_types: [dense]", "mlp_layer_types has 1 words for 2 layers"},
    {"ernie_loss", "ernie4_5_moe", kSmall + "output_router_logits: true",
     "output_router_logits: true selects transformers' auxiliary loss, which counts experts that this router "
     "does not select"},
    {"mimo_heads", "mimo_v2_flash", kMimo + "swa_num_key_value_heads: 2",
     "swa_num_key_value_heads must be 4 in transformers"},
    {"mimo_groups", "mimo_v2_flash",
     "num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 4, head_dim: 12",
     "sliding_attention layers have twice num_key_value_heads, 8, which does not divide num_attention_heads "
     "4"},
    {"mimo_experts", "mimo_v2_flash", kMimo + "n_routed_experts: 4, num_experts_per_tok: 3, n_group: 2",
     "n_group 2 and topk_group 1 do not fit 4 experts with num_experts_per_tok 3"},
    {"mimo_names", "mimo_v2_flash",
     kMimo + "hybrid_layer_pattern: [1, 0], layer_types: [full_attention, sliding_attention]",
     "hybrid_layer_pattern and layer_types differ for layer 0: set only one of them"},
    {"laguna_heads", "laguna", kSmall + "num_attention_heads_per_layer: [4, 3]",
     "num_attention_heads_per_layer: 3 is not a multiple of num_key_value_heads 2"},
    {"laguna_count", "laguna", kSmall + "num_attention_heads_per_layer: [4]",
     "num_attention_heads_per_layer has 1 numbers for 2 layers"},
    {"laguna_gate", "laguna", kSmall + "gating: per-token",
     "expected true, per-head or per-element, got 'per-token'"},
    {"laguna_dense", "laguna", kSmall + "mlp_only_layers: [1], mlp_layer_types: [dense, sparse]",
     "mlp_only_layers contains layer 1, which is not dense in mlp_layer_types"},
    {"laguna_rope", "laguna", kSmall + "rope_parameters: {rope_type: default, rope_theta: 100}",
     "expected a map for full_attention"},
    {"mistral4_heads", "mistral4", "num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: 2",
     "latent attention has as many heads of keys as of queries, 4, got num_key_value_heads 2"},
    {"mistral4_part", "mistral4",
     "num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: null, rope_parameters: {rope_type: "
     "default, partial_rotary_factor: 0.25}",
     "expected qk_rope_head_dim / (qk_nope_head_dim + qk_rope_head_dim)"},
    {"mistral4_odd", "mistral4",
     "num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: null, qk_rope_head_dim: 3",
     "the rotary embedding needs an even qk_rope_head_dim, got 3"},
    {"mistral4_groups", "mistral4",
     "num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: null, n_routed_experts: 4, n_group: "
     "3",
     "n_group 3 and topk_group 1 do not fit n_routed_experts 4"},
    {"rope_misspelt", "hy_v3", kSmall + "rope_parameters: {rope_type: default, rope_thetaa: 5}",
     "unknown key 'rope_thetaa'\n  hint: did you mean 'rope_theta'?"},
    {"kimi_misspelt", "kimi_linear", "num_hidden_layers: 2, linear_attn_config: {headdim: 8}",
     "linear_attn_config has no key 'headdim'\n  hint: did you mean 'head_dim'?"},
    {"kimi_one_list", "kimi_linear", "num_hidden_layers: 2, linear_attn_config: {kda_layers: [1]}",
     "linear_attn_config has kda_layers but not full_attn_layers"},
    {"kimi_tied", "kimi_linear", "num_hidden_layers: 2, tie_word_embeddings: true",
     "tie_word_embeddings is true, but transformers' KimiLinearForCausalLM has a separate head"},
    {"kimi_groups", "kimi_linear", "num_hidden_layers: 2, num_expert_group: 3",
     "num_experts 256 do not divide into num_expert_group 3 groups"},
    {"kimi_topk_group", "kimi_linear", "num_hidden_layers: 2, num_expert_group: 2, topk_group: 3",
     "topk_group 3 is not from 1 to num_expert_group 2"},
    {"nas_misspelt", "nemotron-nas",
     "num_hidden_layers: 1, num_attention_heads: 4, block_configs: [{attention: {n_head_in_group: 4}, ffn: "
     "{ffn_mult: 1.0}}]",
     "unknown key 'n_head_in_group'\n  hint: did you mean 'n_heads_in_group'?"},
    {"nas_unknown", "nemotron-nas",
     "num_hidden_layers: 1, num_attention_heads: 4, block_configs: [{attention: {no_op: true}, ffn: "
     "{ffn_mult: 1.0}, mamba: {x: 1}}]",
     "block_configs: the key 'mamba' is not built"},
    {"nas_part", "nemotron-nas",
     "num_hidden_layers: 1, num_attention_heads: 4, block_configs: [{attention: {no_op: true}}]",
     "a block needs a map 'ffn', but this one has none"},
    {"nas_mult", "nemotron-nas",
     "num_hidden_layers: 1, num_attention_heads: 4, block_configs: [{attention: {no_op: true}, ffn: "
     "{ffn_mult: -1.0}}]",
     "expected an ffn_mult above 0 and below 4096, got -1.0"}};

INSTANTIATE_TEST_SUITE_P(Of, MixtureRefusals, ::testing::ValuesIn(kRefusals),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace heddle
