// Model configurations: what Hugging Face's keys mean, and what is refused with its reason.
#include <gmock/gmock.h>

#include "checkpoint/folder.h"
#include "heddle/engine/engine.h"
#include "lib/run/model/prepared_model.h"
#include "tests/core/engine/setups.h"
#include "tests/llama_model.h"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using tests::error_of;
using tests::Folder;

ModelConfig read_config(const std::string& json) {
  const Folder folder;
  return read_model_config(folder.write("config.json", json));
}

std::string config_refusal(const std::string& json) {
  const Folder folder;
  const auto file = folder.write("config.json", json);
  return error_of(folder, [&] { engine::read_model(file, tests::built_plugins()); });
}

std::string with(const std::string& keys) {
  return R"({"model_type":"llama","hidden_size":64,"num_attention_heads":4,)" + keys + "}";
}

const std::string kAt = "error[input] FOLDER/config.json";

TEST(ModelConfig, TakesTransformersDefaults) {
  const ModelConfig llama = read_config(R"({"model_type":"llama"})");
  EXPECT_EQ(llama.head_dim, 128);
  EXPECT_EQ(llama.num_key_value_heads, 32);
  EXPECT_EQ(llama.rope_theta, 10000.0);
  EXPECT_FALSE(llama.qkv_bias || llama.mlp_bias || llama.qk_norm || llama.tie_word_embeddings);
  EXPECT_EQ(read_config(R"({"model_type":"qwen3","hidden_size":64})").head_dim, 128);
  EXPECT_EQ(read_config(R"({"model_type":"qwen2"})").vocab_size, 151936);
  EXPECT_TRUE(read_config(R"({"model_type":"qwen2","attention_bias":false})").qkv_bias);
  EXPECT_FALSE(read_config(R"({"model_type":"qwen2"})").output_bias);
  EXPECT_TRUE(read_config(R"({"model_type":"qwen3"})").qk_norm);
  EXPECT_TRUE(read_config(with(R"("attention_bias":true)")).output_bias);
}

TEST(ModelConfig, ReadsBothSpellingsOfTheRotaryEmbedding) {
  const ModelConfig before = read_config(
      with(R"("rope_theta":5e5,"max_position_embeddings":99,"rope_scaling":{"type":"linear","factor":4})"));
  const ModelConfig now = read_config(with(
      R"("max_position_embeddings":99,"rope_parameters":{"rope_type":"linear","rope_theta":500000.0,"factor":4.0})"));
  EXPECT_EQ(before, now);
  EXPECT_EQ(now.rope_scaling.kind, RotaryScaling::Kind::linear);
  const ModelConfig llama3 = read_config(with(
      R"("max_position_embeddings":99,"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4})"));
  EXPECT_EQ(llama3.rope_scaling.original_positions, 99);
}

TEST(ModelConfig, CountsANegativePaddingFromTheEnd) {
  EXPECT_EQ(read_config(with(R"("vocab_size":100,"pad_token_id":-1)")).pad_token_id, 99);
  EXPECT_EQ(read_config(with(R"("vocab_size":100,"pad_token_id":null)")).pad_token_id, -1);
}

TEST(ModelConfig, PassesOverWhatChangesNoNumber) {
  const ModelConfig plain = read_config(with(R"("vocab_size":9)"));
  EXPECT_EQ(plain, read_config(with(R"("vocab_size":9,"architectures":["LlamaForCausalLM"],"use_cache":true,
      "transformers_version":"4.40.0","sliding_window":4096,"use_sliding_window":false,"zzz_of_another_tool":1)")));
}

TEST(ModelConfig, IsWrittenSoThatItReadsBackEqual) {
  for (
      const std::string& json :
      {with(R"("vocab_size":9,"attention_bias":true,"mlp_bias":true,"pad_token_id":3,"dtype":"bfloat16")"),
       with(
           R"("rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":64})"),
       with(R"("rope_parameters":{"rope_type":"linear","factor":2.5,"rope_theta":7})"),
       with(
           R"("rope_scaling":{"rope_type":"yarn","factor":4,"beta_fast":16,"beta_slow":2,"truncate":false,"attention_factor":1.5,"original_max_position_embeddings":64})"),
       with(R"("rope_scaling":{"rope_type":"yarn","factor":40,"mscale":0.7,"mscale_all_dim":0.5})"),
       std::string(
           R"({"model_type":"qwen2","hidden_size":36,"num_attention_heads":6,"num_key_value_heads":3,"tie_word_embeddings":true})"),
       std::string(
           R"({"model_type":"qwen3","hidden_size":40,"num_attention_heads":3,"num_key_value_heads":1,"head_dim":24})")})
    EXPECT_EQ(read_config(json), read_config(to_config_json(read_config(json)))) << json;
}

TEST(ModelConfig, RefusesWhatTransformersWouldComputeOtherwise) {
  EXPECT_EQ(config_refusal(with(R"("hidden_act":"gelu")")),
            kAt + " hidden_act: the activation 'gelu' is not built; known: silu");
  EXPECT_EQ(config_refusal(with(R"("attention_dropout":0.1)")),
            kAt +
                " attention_dropout: dropout of attention is not built, got 0.1\n  hint: set "
                "attention_dropout: 0.0");
  EXPECT_EQ(config_refusal(with(R"("rope_scaling":{"rope_type":"dynamic","factor":4.0})")),
            kAt + " rope_scaling: rope type 'dynamic' is not built; known: default, linear, llama3, yarn");
  EXPECT_EQ(config_refusal(with(R"("rope_scaling":{"rope_type":"linear"})")),
            kAt + " rope_scaling: rope type linear needs factor");
  EXPECT_EQ(config_refusal(with(R"("rope_scaling":{"rope_type":"yarn"})")),
            kAt + " rope_scaling: rope type yarn needs factor");
  EXPECT_EQ(config_refusal(with(R"("rope_scaling":{"rope_type":"yarn","factor":4,"attention_factor":-1})")),
            kAt + " rope_scaling.attention_factor: expected a number above 0, got -1");
  EXPECT_EQ(
      config_refusal(with(R"("partial_rotary_factor":0.5)")),
      kAt +
          " partial_rotary_factor: a model of type llama rotates whole heads, got 0.5\n  hint: leave the "
          "key out");
  EXPECT_EQ(config_refusal(with(R"("quantization_config":{"bits":4})")),
            kAt +
                " quantization_config: quantised weights are not built\n  hint: use the model's unquantised "
                "weights");
}

TEST(ModelConfig, RoundTripsExpertsWithTransformersDefaults) {
  const ModelConfig mixtral = read_config(R"({"model_type":"mixtral"})");
  EXPECT_EQ(mixtral.mixture.experts, 8);
  EXPECT_EQ(mixtral.mixture.width, 14336);
  EXPECT_TRUE(mixtral.mixture.normalise);
  EXPECT_EQ(mixtral.num_key_value_heads, 8);
  EXPECT_EQ(read_config(R"({"model_type":"olmoe"})").pad_token_id, 1);
  EXPECT_EQ(read_config(R"({"model_type":"qwen2_moe"})").mixture.shared_width, 5632);
  const ModelConfig qwen3 = read_config(R"({"model_type":"qwen3_moe","decoder_sparse_step":2,
      "mlp_only_layers":[3],"num_hidden_layers":6,"output_router_logits":true})");
  EXPECT_EQ(qwen3.head_dim, 64);
  EXPECT_EQ(qwen3.mixture.balance.form, model::BalanceLoss::Form::model);
  for (const int64_t layer : {0, 2, 3, 4}) EXPECT_FALSE(qwen3.mixture.sparse(layer)) << layer;
  EXPECT_TRUE(qwen3.mixture.sparse(1) && qwen3.mixture.sparse(5));
  for (
      const char* json :
      {R"({"model_type":"mixtral","num_local_experts":3,"router_aux_loss_type":"layer","router_jitter_noise":0.1})",
       R"({"model_type":"olmoe","norm_topk_prob":true,"pad_token_id":null,"output_router_logits":true})",
       R"({"model_type":"qwen2_moe","qkv_bias":false,"mlp_only_layers":[0,1],"router_z_loss_coef":0.01})",
       R"({"model_type":"qwen3_moe","router_dtype":"float32","fake_balanced_gate":true})"})
    EXPECT_EQ(read_config(json), read_config(to_config_json(read_config(json)))) << json;
}

TEST(ModelConfig, RefusesImpossibleExperts) {
  EXPECT_EQ(config_refusal(R"({"model_type":"mixtral","num_local_experts":2,"num_experts_per_tok":3})"),
            kAt + ": num_experts_per_tok 3 is more than the 2 experts");
  EXPECT_EQ(config_refusal(R"({"model_type":"olmoe","clip_qkv":8.0})"),
            kAt +
                " clip_qkv: clamping queries, keys and values is not built, got 8.0\n"
                "  hint: set clip_qkv: null");
  EXPECT_EQ(
      config_refusal(
          R"({"model_type":"olmoe","hidden_size":16,"num_attention_heads":2,"num_key_value_heads":2,"head_dim":4})"),
      kAt +
          " head_dim: the heads of olmoe are hidden_size / num_attention_heads wide (8), got 4: "
          "transformers reads no other\n  hint: leave head_dim out");
  EXPECT_EQ(
      config_refusal(R"({"model_type":"glm4_moe","head_dim":6})"),
      kAt +
          " head_dim: of heads of 6 an even number must be rotated, from 2 on, and glm4_moe rotates 0.5 of "
          "them by default\n  hint: give partial_rotary_factor, or another head_dim");
  EXPECT_NE(config_refusal(R"({"model_type":"bailing_moe","head_dim":10})").find("rotates 0.5"),
            std::string::npos);
  EXPECT_EQ(config_refusal(R"({"model_type":"mixtral","router_jitter_noise":1.0})"),
            kAt + " router_jitter_noise: expected a number from 0 to below 1, got 1.0");
  EXPECT_EQ(config_refusal(R"({"model_type":"qwen3_moe","num_hidden_layers":2,"mlp_only_layers":[2]})"),
            kAt + " mlp_only_layers[0]: the model has the layers 0 to 1, got 2");
  EXPECT_EQ(config_refusal(R"({"model_type":"qwen3_moe","num_hidden_layers":2,"mlp_only_layers":1})"),
            kAt + " mlp_only_layers: expected a list of layers, got 1");
  EXPECT_EQ(config_refusal(R"({"model_type":"qwen3_moe","num_hidden_layers":2,"mlp_only_layers":[0,1]})"),
            kAt + ": decoder_sparse_step and mlp_only_layers leave no layer with experts");
  EXPECT_EQ(config_refusal(R"({"model_type":"olmoe","router_aux_loss_type":"whole"})"),
            kAt +
                " router_aux_loss_type: unknown auxiliary loss 'whole'; known: none, layer, sequence, "
                "global, model");
  EXPECT_EQ(config_refusal(R"({"model_type":"olmoe","router_dtype":"float16"})"),
            kAt + " router_dtype: expected float32 or null, got 'float16'");
}

TEST(ModelConfig, RefusesSizesThatCannotBe) {
  EXPECT_EQ(config_refusal(with(R"("num_key_value_heads":3)")),
            kAt + ": num_attention_heads 4 is not a multiple of num_key_value_heads 3");
  EXPECT_EQ(config_refusal(R"({"model_type":"llama","hidden_size":40,"num_attention_heads":3})"),
            kAt + ": hidden_size 40 is not a multiple of num_attention_heads 3\n  hint: give head_dim");
  EXPECT_EQ(config_refusal(with(R"("head_dim":7)")),
            kAt + " head_dim: the rotary embedding needs an even head_dim, got 7");
  EXPECT_EQ(config_refusal(with(R"("num_hidden_layers":0)")),
            kAt + " num_hidden_layers: expected a size from 1 to 100000, got 0");
  EXPECT_EQ(config_refusal(with(R"("vocab_size":"many")")),
            kAt + " vocab_size: expected an integer, got 'many'");
  EXPECT_EQ(config_refusal(with(R"("vocab_size":10,"pad_token_id":10)")),
            kAt + " pad_token_id: expected a token of the vocabulary of 10, got 10");
}

TEST(ModelConfig, RefusesRotaryParametersThatCannotBe) {
  const std::string at = kAt + " rope_parameters";
  const auto rope = [](const std::string& json) {
    return config_refusal(with("\"rope_parameters\":" + json));
  };
  EXPECT_EQ(rope("3"), at + ": expected a map with rope_type, got 3");
  EXPECT_EQ(rope(R"({"full_attention":{"rope_type":"default"}})"),
            at + ".full_attention: rotary parameters of their own per layer type are not built");
  EXPECT_EQ(rope(R"({"partial_rotary_factor":0.25})"),
            at + ".partial_rotary_factor: a model of type llama rotates whole heads, got 0.25\n  hint: leave "
                 "the key out");
  EXPECT_EQ(rope(R"({"rope_type":"linear","factor":-2})"), at + ".factor: expected a number above 0, got -2");
  EXPECT_EQ(rope(R"({"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4})"),
            at + ".high_freq_factor: expected more than low_freq_factor, got 4");
  EXPECT_EQ(rope(R"({"rope_theta":1,"rope_type":"yarn","factor":8})"),
            kAt +
                ": the rotary embedding is not finite with rope_theta 1 and the factors of its rope type\n  "
                "hint: rope_theta is the base of the wavelengths, 10000 in most models");
  EXPECT_EQ(rope(R"({"rope_theta":1e-300})"),
            kAt +
                ": the rotary embedding is not finite with rope_theta 1e-300\n  hint: rope_theta is the base "
                "of the wavelengths, 10000 in most models");
  EXPECT_EQ(rope(R"({"rope_theta":0})"), kAt + ": expected a rope_theta above 0, got 0.000000");
}

TEST(ModelConfig, RefusesLayersAndNumbersOfAnotherKind) {
  EXPECT_EQ(config_refusal(R"({"model_type":"qwen3","layer_types":["full_attention","linear_attention"]})"),
            kAt +
                " layer_types: a layer of type 'linear_attention' is not built; known: full_attention, "
                "sliding_attention");
  EXPECT_EQ(config_refusal(with(R"("rms_norm_eps":0)")), kAt + " rms_norm_eps: expected a number above 0");
  EXPECT_EQ(config_refusal(with(R"("initializer_range":2)")),
            kAt + " initializer_range: transformers takes an initializer_range from 0 to 1, got 2");
  EXPECT_EQ(
      config_refusal(R"({"model_type":"llama","hidden_size":66,"num_attention_heads":4,"head_dim":16})"),
      kAt +
          " hidden_size: transformers refuses a llama whose hidden_size 66 is no multiple of "
          "num_attention_heads 4\n  hint: make hidden_size a multiple; head_dim may be any even number "
          "beside it");
  EXPECT_EQ(config_refusal(with(R"("initializer_range":-1)")),
            kAt + " initializer_range: expected a number of at least 0");
  EXPECT_EQ(config_refusal(std::string(50, '[') + std::string(50, ']')), kAt + ": nested deeper than 32");
  EXPECT_EQ(config_refusal("[1]"), kAt + ": expected a map of Hugging Face's keys, got a list");
}

TEST(Pretrained, NamesADirectoryThatIsNotThere) {
  const Folder folder;
  EXPECT_EQ(
      error_of(folder, [&] { open_pretrained(folder / "none", tests::built_plugins()); }),
      "error[input] FOLDER/none: is not there\n"
      "  hint: name a Hugging Face directory (config.json and safetensors), the checkpoint_dir of a run, or "
      "a checkpoint in it");
}

TEST(Pretrained, SaysOfAHubNameThatNothingIsDownloaded) {
  const Folder folder;
  EXPECT_THAT(
      error_of(folder, [] { open_pretrained("some-org/Model-1.5B", tests::built_plugins()); }),
      StartsWith("error[input] some-org/Model-1.5B: is not there\n"
                 "  hint: name a Hugging Face directory (config.json and safetensors), the checkpoint_dir of "
                 "a run, or a checkpoint in it; heddle downloads nothing: `hf download some-org/Model-1.5B` "
                 "brings it to the hub's cache, where it is looked for ("));
}

TEST(ModelConfig, NamesTheNearestKeyAndModel) {
  EXPECT_EQ(config_refusal(with(R"("hiden_size":64)")),
            kAt + " hiden_size: unknown key 'hiden_size'\n  hint: did you mean hidden_size?");
  // Between them all models of the plugins that are built.
  EXPECT_THAT(config_refusal(R"({"model_type":"qwen4"})"),
              AllOf(StartsWith(kAt + " model_type: model_type 'qwen4' is not built; available: "),
                    HasSubstr(" llama, "), HasSubstr(", qwen2, "),
                    EndsWith(" (searched " HEDDLE_BINARY_DIR
                             "/plugins)\n  hint: name the directory of its plugin under 'plugins:' or in "
                             "HEDDLE_PLUGIN_PATH")));
  for (const char* slip : {"Llama", "lama", "lalma", "llam", "llamaa"})
    EXPECT_THAT(config_refusal(R"({"model_type":")" + std::string(slip) + R"("})"),
                HasSubstr("hint: did you mean llama? Else "));
  for (const char* slip : {"qwen3-moe", "qwen3moe", "qwen3_mo"})
    EXPECT_THAT(config_refusal(R"({"model_type":")" + std::string(slip) + R"("})"),
                HasSubstr("hint: did you mean qwen3_moe? Else "));
  for (const char* another : {"olmo4", "granitemoe", "gptj", "glm5_next", "opt", "mpt", "qwen4_moe"})
    EXPECT_THAT(config_refusal(R"({"model_type":")" + std::string(another) + R"("})"),
                AllOf(HasSubstr("is not built; "), Not(HasSubstr("did you mean"))));
  EXPECT_THAT(config_refusal("{}"), AllOf(StartsWith(kAt + ": model_type is missing; available: "),
                                          HasSubstr(" llama, "), HasSubstr(", qwen2, ")));
  EXPECT_NE(config_refusal("{").find(kAt + ": is not JSON: "), std::string::npos);
  const Folder folder;
  EXPECT_EQ(error_of(folder, [&] { engine::read_model(folder / "config.json", tests::built_plugins()); }),
            "error[input] FOLDER/config.json: cannot be read\n"
            "  hint: name a Hugging Face directory, which holds a config.json");
}

TEST(ModelConfig, NamesTheLineOfAnUnknownKey) {
  const Folder folder;
  const Node yaml = config::read_text("model_type: llama\nzzz_of_another_tool: 1\n", "run.yaml");
  EXPECT_EQ(error_of(folder, [&] { engine::read_model(yaml, tests::built_plugins()); }),
            "error[config] run.yaml:2 zzz_of_another_tool: unknown key 'zzz_of_another_tool'\n"
            "  hint: the keys are those of a Hugging Face config.json");
}

// A key that only other types of the family read would have no effect.
TEST(ModelConfig, RefusesAKeyOfAnotherModelType) {
  const auto refusal = [](const std::string& text) {
    const Folder folder;
    const Node yaml = config::read_text(text, "run.yaml");
    return error_of(folder, [&] { engine::read_model(yaml, tests::built_plugins()); });
  };
  EXPECT_THAT(refusal("model_type: mixtral\nnorm_topk_prob: true\n"),
              HasSubstr("run.yaml:2 norm_topk_prob: unknown key 'norm_topk_prob'"));
  EXPECT_THAT(refusal("model_type: qwen2\nmlp_bias: true\n"),
              HasSubstr("run.yaml:2 mlp_bias: unknown key 'mlp_bias'"));
  EXPECT_THAT(refusal("model_type: llama\nuse_sliding_window: true\n"),
              HasSubstr("run.yaml:2 use_sliding_window: unknown key 'use_sliding_window'"));
}

}  // namespace
}  // namespace heddle
