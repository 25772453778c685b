// Model configurations read from Hugging Face's keys.
#include <gmock/gmock.h>

#include "lib/run/model/prepared_model.h"
#include "plugins/llama/exported.h"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::error_of;
using tests::expect_round_trip;
using tests::exported;
using tests::Folder;
using tests::layers_with;

std::string with(const std::string& keys) {
  return R"({"model_type":"llama","hidden_size":64,"num_attention_heads":4,)" + keys + "}";
}

const std::string kTwoLayers = R"("num_hidden_layers":2)";

TEST(ModelConfig, HasTransformersDefaults) {
  const auto llama = exported(R"({"model_type":"llama"})");
  EXPECT_EQ(llama["head_dim"], 128);
  EXPECT_EQ(llama["num_key_value_heads"], 32);
  EXPECT_EQ(llama["rope_theta"], 10000.0);
  for (const char* key : {"attention_bias", "mlp_bias", "tie_word_embeddings"}) EXPECT_EQ(llama[key], false);
  EXPECT_EQ(exported(R"({"model_type":"qwen3","hidden_size":64})")["head_dim"], 128);
  EXPECT_EQ(exported(R"({"model_type":"qwen3","hidden_size":64,"head_dim":null})")["head_dim"], 2);
  EXPECT_EQ(exported(R"({"model_type":"qwen2"})")["vocab_size"], 151936);
  EXPECT_EQ(exported(R"({"model_type":"qwen2","num_attention_heads":64})")["num_key_value_heads"], 32);
  EXPECT_EQ(exported(R"({"model_type":"qwen2","num_attention_heads":16})")["num_key_value_heads"], 16);
}

TEST(ModelConfig, HasTheParametersOfItsType) {
  const auto layers = [](const std::string& type, const std::string& more, const char* module) {
    return layers_with(R"({"model_type":")" + type + "\"," + more + kTwoLayers + "}", module);
  };
  EXPECT_THAT(layers("qwen2", R"("attention_bias":false,)", "k_proj.bias"), ElementsAre(0, 1));
  EXPECT_THAT(layers("qwen2", "", "o_proj.bias"), ElementsAre());
  EXPECT_THAT(layers("qwen3", "", "q_norm"), ElementsAre(0, 1));
  EXPECT_THAT(layers("qwen3", "", "q_proj.bias"), ElementsAre());
  EXPECT_THAT(layers("llama", R"("attention_bias":true,)", "o_proj.bias"), ElementsAre(0, 1));
  EXPECT_THAT(layers("llama", R"("mlp_bias":true,)", "down_proj.bias"), ElementsAre(0, 1));
}

TEST(ModelConfig, ReadsBothSpellingsOfTheRotaryEmbedding) {
  const auto before = exported(
      with(R"("rope_theta":5e5,"max_position_embeddings":99,"rope_scaling":{"type":"linear","factor":4})"));
  const auto now = exported(with(
      R"("max_position_embeddings":99,"rope_parameters":{"rope_type":"linear","rope_theta":500000.0,"factor":4.0})"));
  EXPECT_EQ(before, now);
  EXPECT_EQ(now["rope_scaling"]["rope_type"], "linear");
  const auto llama3 = exported(with(
      R"("max_position_embeddings":99,"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4})"));
  EXPECT_EQ(llama3["rope_scaling"]["original_max_position_embeddings"], 99);
}

TEST(ModelConfig, CountsANegativePaddingFromTheEnd) {
  EXPECT_EQ(exported(with(R"("vocab_size":100,"pad_token_id":-1)"))["pad_token_id"], 99);
  EXPECT_EQ(exported(with(R"("vocab_size":100,"pad_token_id":null)"))["pad_token_id"], nullptr);
}

TEST(ModelConfig, IgnoresKeysWithoutEffect) {
  EXPECT_EQ(exported(with(R"("vocab_size":9)")),
            exported(with(R"("vocab_size":9,"architectures":["LlamaForCausalLM"],"use_cache":true,
      "transformers_version":"4.40.0","sliding_window":4096,"use_sliding_window":false,"zzz_of_another_tool":1)")));
}

TEST(ModelConfig, RoundTrips) {
  for (
      const std::string& json :
      {with(R"("vocab_size":9,"attention_bias":true,"mlp_bias":true,"pad_token_id":3)"),
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
    expect_round_trip(json);
}

TEST(ModelConfig, RoundTripsExpertsWithTransformersDefaults) {
  const auto mixtral = exported(R"({"model_type":"mixtral"})");
  EXPECT_EQ(mixtral["num_local_experts"], 8);
  EXPECT_EQ(mixtral["num_key_value_heads"], 8);
  EXPECT_EQ(exported(R"({"model_type":"mixtral","num_experts":4})")["num_local_experts"], 4);
  EXPECT_EQ(tests::read_json(R"({"model_type":"mixtral"})")->signature().at("moe_intermediate_size"),
            "14336");
  EXPECT_THAT(tests::read_json(R"({"model_type":"mixtral"})")->signature().at("router"),
              HasSubstr("normalised"));
  EXPECT_EQ(exported(R"({"model_type":"olmoe"})")["pad_token_id"], 1);
  EXPECT_EQ(exported(R"({"model_type":"qwen2_moe"})")["shared_expert_intermediate_size"], 5632);
  const std::string sparse = R"({"model_type":"qwen3_moe","decoder_sparse_step":2,
      "mlp_only_layers":[3],"num_hidden_layers":6,"num_experts":8,"output_router_logits":true})";
  EXPECT_EQ(exported(sparse)["head_dim"], 64);
  EXPECT_EQ(exported(sparse)["router_aux_loss_type"], "model");
  EXPECT_THAT(layers_with(sparse, "mlp.experts"), ElementsAre(1, 5));
  for (
      const char* json :
      {R"({"model_type":"mixtral","num_local_experts":3,"router_aux_loss_type":"layer","router_jitter_noise":0.1})",
       R"({"model_type":"olmoe","norm_topk_prob":true,"pad_token_id":null,"output_router_logits":true})",
       R"({"model_type":"qwen2_moe","qkv_bias":false,"mlp_only_layers":[0,1],"router_z_loss_coef":0.01})",
       R"({"model_type":"qwen3_moe","router_dtype":"float32","fake_balanced_gate":true})"})
    expect_round_trip(json);
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
