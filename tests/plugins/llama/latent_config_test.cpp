// config.json of models with latent attention: transformers' defaults, and round trips.
#include <gmock/gmock.h>

#include "plugins/llama/exported.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using tests::expect_round_trip;
using tests::exported;
using tests::layers_with;

// Keys of Moonlight's file.
const char* const kMoonlight = R"({"model_type":"deepseek_v3","architectures":["DeepseekV3ForCausalLM"],
    "hidden_size":2048,"num_hidden_layers":27,"num_attention_heads":16,"num_key_value_heads":16,
    "q_lora_rank":null,"kv_lora_rank":512,"n_routed_experts":64,"n_shared_experts":2,"num_experts_per_tok":6,
    "moe_intermediate_size":1408,"n_group":1,"topk_group":1,"topk_method":"noaux_tc","scoring_func":"sigmoid",
    "first_k_dense_replace":1,"moe_layer_freq":1,"ep_size":1,"aux_loss_alpha":0.002,"seq_aux":true,
    "routed_scaling_factor":2.446,"num_nextn_predict_layers":0,"rope_theta":50000.0,"rope_scaling":null})";

void expect_widths(const nlohmann::json& keys, const std::vector<int64_t>& widths) {
  const char* const kWidths[] = {"kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
                                 "v_head_dim"};
  for (size_t i = 0; i < widths.size(); ++i) EXPECT_EQ(keys[kWidths[i]], widths[i]) << kWidths[i];
}

TEST(LatentConfig, HasTransformersDefaults) {
  auto v3 = exported(R"({"model_type":"deepseek_v3"})");
  expect_widths(v3, {512, 1536, 128, 64, 128});
  EXPECT_EQ(v3["rope_interleave"], true);
  EXPECT_EQ(v3["head_dim"], 64);
  EXPECT_EQ(v3["num_key_value_heads"], 128);
  EXPECT_EQ(v3["n_shared_experts"], 1);
  EXPECT_EQ(v3["norm_topk_prob"], true);
  EXPECT_EQ(v3["router_dtype"], "float32");
  EXPECT_EQ(v3["gate_bias_update_factor"], 0);
  const std::string five = R"(,"num_hidden_layers":5,"n_routed_experts":16})";
  EXPECT_THAT(layers_with(R"({"model_type":"deepseek_v3")" + five, "mlp.experts"), ElementsAre(3, 4));
  EXPECT_THAT(layers_with(R"({"model_type":"deepseek_v3")" + five, "e_score_correction_bias"),
              ElementsAre(3, 4));
  auto kimi = exported(R"({"model_type":"kimi_k2"})");
  kimi["model_type"] = "deepseek_v3";
  EXPECT_EQ(kimi, v3);
  const auto v2 = exported(R"({"model_type":"deepseek_v2","num_experts_per_tok":6})");
  EXPECT_EQ(v2["n_group"], 1);
  EXPECT_EQ(v2["n_shared_experts"], 2);
  EXPECT_EQ(v2["norm_topk_prob"], false);
  const auto glm = exported(R"({"model_type":"glm4_moe_lite","first_k_dense_replace":1})");
  expect_widths(glm, {512, 768, 192, 64, 256});
  EXPECT_EQ(glm["mlp_layer_types"][0], "dense");
  EXPECT_EQ(glm["mlp_layer_types"][1], "sparse");
}

TEST(LatentConfig, ReadsAPublishedFile) {
  const auto config = exported(kMoonlight);
  EXPECT_EQ(config["q_lora_rank"], nullptr);
  EXPECT_EQ(config["n_shared_experts"], 2);
  EXPECT_EQ(config["router_aux_loss_type"], "none");
  EXPECT_EQ(config["router_aux_loss_coef"], 0.002);
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
    expect_round_trip(json);
}

}  // namespace
}  // namespace heddle
