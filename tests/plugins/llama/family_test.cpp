// Llama's family as a trainer uses it, found by model_type.
#include <gmock/gmock.h>

#include "heddle/engine/engine.h"
#include "lib/checkpoint/huggingface/hf_plan.h"
#include "tests/core/engine/setups.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Key;

std::shared_ptr<const ModelSpec> read(const std::string& keys) {
  return engine::read_model(config::read_text("{" + keys + "}", "run.yaml"), tests::built_plugins());
}

const std::string kSizes =
    "vocab_size: 67, hidden_size: 36, intermediate_size: 50, num_hidden_layers: 3, num_attention_heads: 6, "
    "num_key_value_heads: 3, max_position_embeddings: 40, dtype: bfloat16";

TEST(Family, ReportsItsFacts) {
  for (const std::string type : {"llama", "qwen2", "qwen3"}) {
    const ModelFacts facts = read("model_type: " + type + ", " + kSizes)->facts();
    EXPECT_EQ(facts.model_type, type);
    EXPECT_EQ(facts.vocabulary, 67);
    EXPECT_EQ(facts.max_positions, 40);
    EXPECT_EQ(facts.dtype, "bfloat16");
  }
}

TEST(Family, HasTheSignatureOfAutoModel) {
  EXPECT_THAT(
      read("model_type: llama, " + kSizes)->signature(),
      ElementsAre(Key("hidden_size"), Key("intermediate_size"), Key("model_type"), Key("num_attention_heads"),
                  Key("num_hidden_layers"), Key("num_key_value_heads"), Key("rope_scaling"),
                  Key("rope_theta"), Key("tie_word_embeddings"), Key("vocab_size")));
}

// S L h^2 (12 + 12 g/a + 18 f/h + 6 S/h + 6 V/(L h)) per sequence.
TEST(Family, CountsOperationsLikeAutoModel) {
  constexpr double h = 36, a = 6, g = 3, f = 50, layers = 3, vocabulary = 67, s = 20;
  const double formula =
      layers * h * h * (12 + 12 * g / a + 18 * f / h + 6 * s / h + 6 * vocabulary / (layers * h));
  EXPECT_NEAR(read("model_type: llama, " + kSizes)->flops_per_token(20), formula, 1e-6 * formula);
  // A head with another width: q = a d / h.
  constexpr double q = 6.0 * 10 / 36;
  const double wide =
      6 * layers * h * h * q * (2 * g / a + 1 + s / h + 1) + 6 * layers * h * 3 * f + 6 * h * vocabulary;
  EXPECT_NEAR(read("model_type: qwen3, head_dim: 10, " + kSizes)->flops_per_token(20), wide, 1e-6 * wide);
}

// Counts the experts of a token, the router, and Qwen2's shared expert with its gate.
TEST(Family, CountsOnlyTheExpertsOfAToken) {
  const std::string experts = ", num_experts: 7, num_experts_per_tok: 2, moe_intermediate_size: 5, " + kSizes;
  const double dense = read("model_type: qwen2, " + kSizes)->flops_per_token(20);
  const double mlp = 6 * 3 * 36 * 3 * 50;
  EXPECT_NEAR(
      read("model_type: qwen2_moe, shared_expert_intermediate_size: 11" + experts)->flops_per_token(20),
      dense - mlp + 6 * 3 * 36 * (7 + 3 * 2 * 5 + 3 * 11 + 1), 1);
  EXPECT_NEAR(read("model_type: qwen3_moe, head_dim: 6, mlp_only_layers: [0]" + experts)->flops_per_token(20),
              dense - 2 * mlp / 3 + 6 * 2 * 36 * (7 + 3 * 2 * 5), 1);
}

// Six operations per weight of a product, and three per element of q k^T and of its product with v.
TEST(Family, CountsLatentAttentionByItsProducts) {
  const std::string latent =
      "model_type: deepseek_v3, num_key_value_heads: 6, kv_lora_rank: 8, qk_nope_head_dim: 4, "
      "qk_rope_head_dim: 2, v_head_dim: 5, first_k_dense_replace: 2, n_routed_experts: 8, n_group: 2, "
      "topk_group: 1, num_experts_per_tok: 2, moe_intermediate_size: 5, n_shared_experts: 2";
  const std::string sizes =
      ", vocab_size: 67, hidden_size: 36, intermediate_size: 50, num_hidden_layers: 3, "
      "num_attention_heads: 6";
  constexpr double keys = 36 * (8 + 2) + 8 * 6 * (4 + 5), out = 6 * 5 * 36, scores = 6 * (4 + 2 + 5) * 20;
  constexpr double others = 6 * (2 * 3 * 36 * 50 + 36 * (8 + 3 * 2 * 5 + 3 * 10) + 36 * 67);
  EXPECT_NEAR(read(latent + ", q_lora_rank: 7" + sizes)->flops_per_token(20),
              3 * (6 * (36 * 7 + 7 * 6 * 6 + keys + out) + 3 * scores) + others, 1);
  EXPECT_NEAR(read(latent + ", q_lora_rank: null" + sizes)->flops_per_token(20),
              3 * (6 * (36 * 6 * 6 + keys + out) + 3 * scores) + others, 1);
}

TEST(Family, StoresExpertsSeparately) {
  const std::vector<int64_t> shape = {2, 2, 3, 4}, of_down = {2, 6, 4};
  const StoredParts parts = read("model_type: mixtral, num_local_experts: 2, " + kSizes)
                                ->stored("model.layers.1.mlp.experts.gate_up_proj", shape);
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(stored::fault(parts, shape), "");
  EXPECT_EQ(parts[3].tensor, "model.layers.1.block_sparse_moe.experts.1.w3.weight");
  EXPECT_THAT(parts[3].offset, ElementsAre(1, 1, 0, 0));
  EXPECT_EQ(read("model_type: qwen3_moe, num_experts: 2, num_experts_per_tok: 1, " + kSizes)
                ->stored("model.layers.0.mlp.experts.down_proj", of_down)[1]
                .tensor,
            "model.layers.0.mlp.experts.1.down_proj.weight");
}

// A rounded correction bias would select other experts: its steps are smaller than those of bfloat16.
TEST(Family, ExportsACorrectionBiasInItsOwnDtype) {
  const auto model = read(
      "model_type: deepseek_v3, kv_lora_rank: 8, qk_nope_head_dim: 4, qk_rope_head_dim: 2, v_head_dim: 5, "
      "q_lora_rank: 7, first_k_dense_replace: 1, n_routed_experts: 8, n_group: 2, topk_group: 1, "
      "num_experts_per_tok: 2, moe_intermediate_size: 5, vocab_size: 67, hidden_size: 36, "
      "intermediate_size: 50, num_hidden_layers: 2, num_attention_heads: 6, num_key_value_heads: 6");
  checkpoint::Manifest saved;
  for (const auto& unit : model->make_units(at::TensorOptions(at::kMeta).dtype(at::kFloat)))
    for (const ParameterSlot& slot : unit->parameters())
      saved.tensors[slot.name] = {at::kFloat, slot.tensor->sizes().vec(), {}};
  const checkpoint::HfPlan plan = checkpoint::plan_hf(saved, {}, {.dtype = at::kBFloat16}, model.get());
  std::vector<std::string> wide;
  for (const auto& file : plan.files)
    for (const auto& tensor : file.tensors)
      if (tensor.dtype != at::kBFloat16) wide.push_back(tensor.name);
  EXPECT_THAT(wide, ElementsAre("model.layers.1.mlp.gate.e_score_correction_bias"));
}

TEST(Family, KnowsTheAliasOfATiedHeadOnly) {
  EXPECT_THAT(read("model_type: llama, tie_word_embeddings: true, " + kSizes)
                  ->other_names("model.embed_tokens.weight"),
              ElementsAre("lm_head.weight"));
  EXPECT_THAT(read("model_type: llama, " + kSizes)->other_names("model.embed_tokens.weight"), IsEmpty());
  EXPECT_THAT(read("model_type: llama, " + kSizes)->stored("lm_head.weight", std::vector<int64_t>{67, 36}),
              IsEmpty());
}

// Opens only the plugin of the requested family.
TEST(Family, OpensOnlyItsPlugin) {
  PluginRegistry plugins({std::filesystem::path(HEDDLE_BINARY_DIR) / "plugins"});
  (void)engine::read_model(config::read_text("{model_type: qwen3}", "run.yaml"), plugins);
  std::vector<std::string> names;
  for (const PluginInfo& info : plugins.loaded()) names.push_back(info.name);
  EXPECT_THAT(names, ElementsAre("single", "llama"));
}

}  // namespace
}  // namespace heddle
