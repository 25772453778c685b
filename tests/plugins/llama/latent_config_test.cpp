// config.json of models with latent attention: transformers' defaults, and round trips.
#include <gtest/gtest.h>

#include "checkpoint/folder.h"
#include "tests/llama_model.h"

namespace heddle {
namespace {

using tests::Folder;
using Score = model::RouterRule::Score;

ModelConfig latent_config(const std::string& json) {
  const Folder folder;
  folder.write("config.json", json);
  return read_model_config(folder / "config.json");
}

// Keys of Moonlight's file.
const char* const kMoonlight = R"({"model_type":"deepseek_v3","architectures":["DeepseekV3ForCausalLM"],
    "hidden_size":2048,"num_hidden_layers":27,"num_attention_heads":16,"num_key_value_heads":16,
    "q_lora_rank":null,"kv_lora_rank":512,"n_routed_experts":64,"n_shared_experts":2,"num_experts_per_tok":6,
    "moe_intermediate_size":1408,"n_group":1,"topk_group":1,"topk_method":"noaux_tc","scoring_func":"sigmoid",
    "first_k_dense_replace":1,"moe_layer_freq":1,"ep_size":1,"aux_loss_alpha":0.002,"seq_aux":true,
    "routed_scaling_factor":2.446,"num_nextn_predict_layers":0,"rope_theta":50000.0,"rope_scaling":null})";

TEST(LatentConfig, HasTransformersDefaults) {
  const ModelConfig v3 = latent_config(R"({"model_type":"deepseek_v3"})");
  EXPECT_EQ(v3.latent, (llama::Latent{512, 1536, 128, 64, 128, true}));
  EXPECT_EQ(v3.head_dim, 64);
  EXPECT_EQ(v3.num_key_value_heads, 128);
  EXPECT_EQ(v3.mixture.shared_width, 2048);
  EXPECT_TRUE(v3.mixture.correction && v3.mixture.normalise && v3.mixture.router_in_fp32);
  EXPECT_EQ(v3.mixture.correction_rate, 0);
  EXPECT_EQ(v3.mixture.score, Score::sigmoid);
  EXPECT_EQ(v3.mixture.group_best, 2);
  EXPECT_FALSE(v3.mixture.sparse(2));
  EXPECT_TRUE(v3.mixture.sparse(3));
  ModelConfig kimi = latent_config(R"({"model_type":"kimi_k2"})");
  kimi.model_type = "deepseek_v3";
  EXPECT_EQ(kimi, v3);
  const ModelConfig v2 = latent_config(R"({"model_type":"deepseek_v2","num_experts_per_tok":6})");
  EXPECT_EQ(v2.mixture.groups, 1);
  EXPECT_EQ(v2.mixture.shared_width, 2 * 1407);
  EXPECT_FALSE(v2.mixture.correction || v2.mixture.normalise);
  const ModelConfig glm = latent_config(R"({"model_type":"glm4_moe_lite","first_k_dense_replace":1})");
  EXPECT_EQ(glm.latent, (llama::Latent{512, 768, 192, 64, 256, true}));
  EXPECT_FALSE(glm.mixture.sparse(0));
  EXPECT_TRUE(glm.mixture.sparse(1));
}

TEST(LatentConfig, ReadsAPublishedFile) {
  const ModelConfig config = latent_config(kMoonlight);
  EXPECT_EQ(config.latent.query_rank, 0);
  EXPECT_EQ(config.mixture.shared_width, 2816);
  EXPECT_EQ(config.mixture.balance.form, model::BalanceLoss::Form::none);
  EXPECT_EQ(config.mixture.balance.coefficient, 0.002);
}

TEST(LatentConfig, RoundTrips) {
  for (
      const char* json :
      {kMoonlight,
       R"({"model_type":"deepseek_v3","n_shared_experts":null,"gate_bias_update_factor":0.001,"rope_interleave":false,
            "rope_scaling":{"type":"yarn","factor":40,"mscale":1.0,"mscale_all_dim":1.0,
            "original_max_position_embeddings":4096}})",
       R"({"model_type":"kimi_k2","moe_layer_freq":2,"router_aux_loss_type":"sequence","attention_bias":true})",
       R"({"model_type":"deepseek_v2","num_experts_per_tok":6,"topk_method":"group_limited_greedy","n_group":8,
            "topk_group":3})",
       R"({"model_type":"glm4_moe_lite","num_hidden_layers":3,"mlp_layer_types":["sparse","dense","sparse"]})"})
    EXPECT_EQ(latent_config(json), latent_config(to_config_json(latent_config(json)))) << json;
}

}  // namespace
}  // namespace heddle
