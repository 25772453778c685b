// config.json of models with sparse latent attention: transformers' defaults, published keys, and round
// trips.
#include <gmock/gmock.h>

#include "plugins/llama/exported.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using tests::expect_round_trip;
using tests::exported;

// Returns F for layers with their own indexer and S for layers that share a selection.
std::string pattern_of(const std::string& keys) {
  const auto config = exported(R"({"model_type":"glm_moe_dsa","num_hidden_layers":7,)" + keys + "}");
  std::string out;
  for (const auto& type : config["indexer_types"]) out += type == "shared" ? "S" : "F";
  return out;
}

TEST(SparseConfig, HasTransformersDefaults) {
  const auto deepseek = exported(R"({"model_type":"deepseek_v32"})");
  const auto glm = exported(R"({"model_type":"glm_moe_dsa"})");
  const std::tuple<const char*, int64_t, int64_t> kNumbers[] = {{"kv_lora_rank", 512, 512},
                                                                {"q_lora_rank", 1536, 2048},
                                                                {"qk_nope_head_dim", 128, 192},
                                                                {"qk_rope_head_dim", 64, 64},
                                                                {"v_head_dim", 128, 256},
                                                                {"index_topk", 2048, 2048},
                                                                {"index_n_heads", 64, 32},
                                                                {"index_head_dim", 128, 128},
                                                                {"n_group", 8, 1},
                                                                {"max_position_embeddings", 163840, 202752},
                                                                {"num_hidden_layers", 61, 78}};
  for (const auto& [key, of_deepseek, of_glm] : kNumbers) {
    EXPECT_EQ(deepseek[key], of_deepseek) << key;
    EXPECT_EQ(glm[key], of_glm) << key;
  }
  EXPECT_EQ(deepseek["indexer_rope_interleave"], false);
  EXPECT_EQ(glm["indexer_rope_interleave"], true);
  for (const auto& one : {deepseek, glm}) {
    EXPECT_EQ(one["rope_interleave"], true);
    EXPECT_EQ(one["norm_topk_prob"], true);
    EXPECT_EQ(one["router_dtype"], "float32");
    EXPECT_EQ(one["mlp_layer_types"][2], "dense");
    EXPECT_EQ(one["mlp_layer_types"][3], "sparse");
  }
}

TEST(SparseConfig, ReadsLayersThatShareASelection) {
  EXPECT_EQ(pattern_of(R"("index_topk_freq":4,"index_skip_topk_offset":3)"), "FFFSSSF");
  EXPECT_EQ(pattern_of(R"("index_topk_freq":2)"), "FFSFSFS");
  EXPECT_EQ(pattern_of(R"("index_topk_pattern":"FFSSFSF")"), "FFSSFSF");
  EXPECT_EQ(
      pattern_of(
          R"("index_topk_freq":4,"indexer_types":["full","full","full","full","full","full","shared"])"),
      "FFFFFFS");
  EXPECT_EQ(pattern_of(R"("index_topk_freq":1)"), "FFFFFFF");
}

// Keys of GLM-5.2 that DeepSeek-V3 does not have. head_dim belongs to queries.
TEST(SparseConfig, ReadsPublishedKeys) {
  const std::string published =
      R"({"model_type":"glm_moe_dsa","num_hidden_layers":4,"head_dim":192,"qk_head_dim":256,"moe_layer_freq":1,
          "first_k_dense_replace":3,"mlp_layer_types":["dense","dense","sparse","sparse"],"rope_interleave":true,
          "rope_parameters":{"rope_theta":8000000,"rope_type":"default"},"indexer_rope_interleave":true,
          "index_topk_pattern":null,"index_topk_freq":4,"index_skip_topk_offset":3,"scoring_func":"sigmoid",
          "indexer_types":["full","full","full","shared"],"index_share_for_mtp_iteration":true,
          "num_nextn_predict_layers":1,"topk_method":"noaux_tc","ep_size":1,"n_routed_experts":16})";
  const auto config = exported(published);
  EXPECT_EQ(config["head_dim"], 64);
  EXPECT_EQ(config["rope_theta"], 8000000);
  EXPECT_THAT(tests::layers_with(published, "mlp.experts"), ElementsAre(2, 3));
  EXPECT_THAT(tests::layers_with(published, "indexer"), ElementsAre(0, 1, 2));
}

TEST(SparseConfig, RoundTrips) {
  for (
      const char* json :
      {R"({"model_type":"deepseek_v32","index_topk":7,"index_n_heads":3,"index_head_dim":70,
            "indexer_rope_interleave":true,"gate_bias_update_factor":0.001})",
       R"({"model_type":"deepseek_v32","first_k_dense_replace":2,"rope_scaling":{"type":"yarn","factor":40,
            "mscale":1.0,"mscale_all_dim":1.0,"original_max_position_embeddings":4096}})",
       R"({"model_type":"glm_moe_dsa","num_hidden_layers":5,"index_topk_freq":2,"indexer_rope_interleave":false})"})
    expect_round_trip(json);
}

}  // namespace
}  // namespace heddle
