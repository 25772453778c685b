// config.json of models with sparse latent attention: transformers' defaults, published keys, and round
// trips.
#include <gtest/gtest.h>

#include "checkpoint/folder.h"
#include "tests/llama_model.h"

namespace heddle {
namespace {

using tests::Folder;
using Shared = std::vector<bool>;

ModelConfig sparse_config(const std::string& json) {
  const Folder folder;
  folder.write("config.json", json);
  return read_model_config(folder / "config.json");
}

Shared shared_of(const std::string& keys) {
  return sparse_config(R"({"model_type":"glm_moe_dsa","num_hidden_layers":7,)" + keys + "}")
      .latent.indexer.shared;
}

TEST(SparseConfig, HasTransformersDefaults) {
  const ModelConfig deepseek = sparse_config(R"({"model_type":"deepseek_v32"})");
  EXPECT_EQ(deepseek.latent, (llama::Latent{512, 1536, 128, 64, 128, true, {2048, 64, 128, false, {}}}));
  EXPECT_EQ(deepseek.max_position_embeddings, 163840);
  EXPECT_EQ(deepseek.mixture.groups, 8);
  const ModelConfig glm = sparse_config(R"({"model_type":"glm_moe_dsa"})");
  EXPECT_EQ(glm.latent, (llama::Latent{512, 2048, 192, 64, 256, true, {2048, 32, 128, true, {}}}));
  EXPECT_EQ(glm.num_hidden_layers, 78);
  EXPECT_EQ(glm.mixture.groups, 1);
  EXPECT_TRUE(glm.mixture.correction && glm.mixture.normalise && glm.mixture.router_in_fp32);
  for (const ModelConfig& one : {deepseek, glm}) {
    EXPECT_FALSE(one.mixture.sparse(2));
    EXPECT_TRUE(one.mixture.sparse(3));
  }
}

TEST(SparseConfig, ReadsLayersThatShareASelection) {
  EXPECT_EQ(shared_of(R"("index_topk_freq":4,"index_skip_topk_offset":3)"),
            (Shared{false, false, false, true, true, true, false}));
  EXPECT_EQ(shared_of(R"("index_topk_freq":2)"), (Shared{false, false, true, false, true, false, true}));
  EXPECT_EQ(shared_of(R"("index_topk_pattern":"FFSSFSF")"),
            (Shared{false, false, true, true, false, true, false}));
  EXPECT_EQ(
      shared_of(
          R"("index_topk_freq":4,"indexer_types":["full","full","full","full","full","full","shared"])"),
      (Shared{false, false, false, false, false, false, true}));
  EXPECT_EQ(shared_of(R"("index_topk_freq":1)"), Shared{});
}

// Keys of GLM-5.2 that DeepSeek-V3 does not have. head_dim belongs to queries.
TEST(SparseConfig, ReadsPublishedKeys) {
  const ModelConfig config = sparse_config(
      R"({"model_type":"glm_moe_dsa","num_hidden_layers":4,"head_dim":192,"qk_head_dim":256,"moe_layer_freq":1,
          "first_k_dense_replace":3,"mlp_layer_types":["dense","dense","sparse","sparse"],"rope_interleave":true,
          "rope_parameters":{"rope_theta":8000000,"rope_type":"default"},"indexer_rope_interleave":true,
          "index_topk_pattern":null,"index_topk_freq":4,"index_skip_topk_offset":3,"scoring_func":"sigmoid",
          "indexer_types":["full","full","full","shared"],"index_share_for_mtp_iteration":true,
          "num_nextn_predict_layers":1,"topk_method":"noaux_tc","ep_size":1})");
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.rope_theta, 8000000);
  EXPECT_TRUE(config.mixture.sparse(2));
  EXPECT_EQ(config.latent.indexer.shared, (Shared{false, false, false, true}));
}

TEST(SparseConfig, RoundTrips) {
  for (
      const char* json :
      {R"({"model_type":"deepseek_v32","index_topk":7,"index_n_heads":3,"index_head_dim":70,
            "indexer_rope_interleave":true,"gate_bias_update_factor":0.001})",
       R"({"model_type":"deepseek_v32","first_k_dense_replace":2,"rope_scaling":{"type":"yarn","factor":40,
            "mscale":1.0,"mscale_all_dim":1.0,"original_max_position_embeddings":4096}})",
       R"({"model_type":"glm_moe_dsa","num_hidden_layers":5,"index_topk_freq":2,"indexer_rope_interleave":false})"}) {
    ModelConfig read = sparse_config(json), back = sparse_config(to_config_json(read));
    for (int64_t layer = 0; layer < read.num_hidden_layers; ++layer)
      EXPECT_EQ(read.mixture.sparse(layer), back.mixture.sparse(layer)) << layer;
    // Dense layers are written as a list.
    for (ModelConfig* one : {&read, &back}) one->mixture.first_sparse = 0, one->mixture.dense_layers = {};
    EXPECT_EQ(read, back) << json;
  }
}

}  // namespace
}  // namespace heddle
