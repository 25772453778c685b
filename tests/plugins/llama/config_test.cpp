// Model configurations read from Hugging Face's keys.
#include <gmock/gmock.h>

#include "checkpoint/folder.h"
#include "heddle/engine/engine.h"
#include "lib/run/model/prepared_model.h"
#include "tests/core/engine/setups.h"
#include "tests/llama_model.h"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::error_of;
using tests::Folder;

ModelConfig read_config(const std::string& json) {
  const Folder folder;
  return read_model_config(folder.write("config.json", json));
}

std::string with(const std::string& keys) {
  return R"({"model_type":"llama","hidden_size":64,"num_attention_heads":4,)" + keys + "}";
}

TEST(ModelConfig, HasTransformersDefaults) {
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

TEST(ModelConfig, IgnoresKeysWithoutEffect) {
  const ModelConfig plain = read_config(with(R"("vocab_size":9)"));
  EXPECT_EQ(plain, read_config(with(R"("vocab_size":9,"architectures":["LlamaForCausalLM"],"use_cache":true,
      "transformers_version":"4.40.0","sliding_window":4096,"use_sliding_window":false,"zzz_of_another_tool":1)")));
}

TEST(ModelConfig, RoundTrips) {
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

TEST(Pretrained, NamesAMissingDirectory) {
  const Folder folder;
  EXPECT_EQ(
      error_of(folder, [&] { open_pretrained(folder / "none", tests::built_plugins()); }),
      "error[input] FOLDER/none: does not exist\n"
      "  hint: name a Hugging Face directory (config.json and safetensors), the checkpoint_dir of a run, or "
      "a checkpoint in it");
}

TEST(ModelType, IsSuggestedForAMisspelling) {
  const auto refusal = [](const std::string& type) {
    const Folder folder;
    const Node yaml = config::read_text("model_type: " + type, "run.yaml");
    return error_of(folder, [&] { engine::read_model(yaml, tests::built_plugins()); });
  };
  for (const char* slip : {"Llama", "lama", "lalma", "llam", "llamaa"})
    EXPECT_THAT(refusal(slip), HasSubstr("hint: did you mean llama? Else "));
  for (const char* slip : {"qwen3-moe", "qwen3moe", "qwen3_mo"})
    EXPECT_THAT(refusal(slip), HasSubstr("hint: did you mean qwen3_moe? Else "));
  for (const char* another : {"olmo4", "granitemoe", "gptj", "glm5_next", "opt", "mpt", "qwen4_moe"})
    EXPECT_THAT(refusal(another), AllOf(HasSubstr("is not built; "), Not(HasSubstr("did you mean"))));
}

}  // namespace
}  // namespace heddle
