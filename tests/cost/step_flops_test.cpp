// FLOPs of a step compared with NeMo AutoModel's FLOP formulas.
#include "lib/cost/mfu.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "heddle/engine/engine.h"
#include "tests/core/engine/setups.h"

namespace heddle {
namespace {

struct Golden {
  const char* name;
  const char* keys;  // override the keys of the common sizes
  int64_t samples, tokens;
  double flops;
};

void PrintTo(const Golden& golden, std::ostream* out) {
  *out << golden.name;
}

constexpr const char* kCommonSizes =
    R"("hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
       "vocab_size": 256, "num_hidden_layers": 2)";
constexpr const char* kLatentSizes =
    R"(, "num_hidden_layers": 3, "num_key_value_heads": 4, "moe_intermediate_size": 32, "num_experts_per_tok": 2,
       "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16)";

const std::string kDeltaSizes =
    R"(, "num_hidden_layers": 4, "head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
       "linear_key_head_dim": 8, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4)";
const std::string kQwen35Keys = kDeltaSizes + R"(, "model_type": "qwen3_5_text", "layer_types":
       ["linear_attention", "linear_attention", "linear_attention", "full_attention"])";
const std::string kQwen35MoeKeys =
    kDeltaSizes + R"(, "model_type": "qwen3_5_moe_text", "num_experts": 8, "num_experts_per_tok": 2,
       "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48)";

const std::string kNemotronKeys =
    R"("model_type": "nemotron_h", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
       "intermediate_size": 96, "vocab_size": 512, "hybrid_override_pattern": "MEM*-E", "ssm_state_size": 16,
       "mamba_num_heads": 8, "mamba_head_dim": 12, "n_groups": 2, "num_experts_per_tok": 3,
       "moe_intermediate_size": 40, "moe_shared_expert_intermediate_size": 48, "n_routed_experts": 8)";
const std::string kNemotronLatentKeys = kNemotronKeys + R"(, "moe_latent_size": 24)";
const std::string kNemotronMtpKeys =
    kNemotronLatentKeys + R"(, "num_nextn_predict_layers": 2, "mtp_hybrid_override_pattern": "*E")";

const std::string kStepKeys =
    R"(, "model_type": "step3p5", "num_hidden_layers": 4, "head_dim": 24, "sliding_window": 16,
       "attention_other_setting": {"num_attention_heads": 6}, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
       "share_expert_dim": 48, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"], "layer_types":
       ["full_attention", "sliding_attention", "sliding_attention", "full_attention"])";
const std::string kStepMtpKeys = kStepKeys + R"(, "num_mtp_layers": 3)";

class StepFlops : public ::testing::TestWithParam<Golden> {};

TEST_P(StepFlops, AreAutoModels) {
  const Golden& golden = GetParam();
  const std::string small =
      std::string(golden.keys).find("hidden_size") == std::string::npos ? kCommonSizes : "";
  const auto json = nlohmann::json::parse("{" + small + golden.keys + "}");  // last duplicate wins
  const Node type = Node::text(json["model_type"].get<std::string>());
  const Node model = Node::map({{"model_type", type}, {"head_dim", Node::integer(128)}});
  const auto family = engine::read_model(model, tests::built_plugins(), UnknownKeys::passed_over);
  const std::string keys = json.dump();
  EXPECT_NEAR(automodel_flops(family->facts(), keys, golden.samples, golden.tokens), golden.flops,
              golden.flops * 1e-14)
      << keys;
}

const std::string kDeepSeekKeys =
    std::string(kLatentSizes) +
    R"(, "model_type": "deepseek_v3", "first_k_dense_replace": 1, "q_lora_rank": 24)";
const std::string kMistral4Keys =
    std::string(kLatentSizes) + R"(, "model_type": "mistral4", "q_lora_rank": 24, "n_shared_experts": 1)";
const std::string kDeepSeekEachKeys =
    std::string(kLatentSizes) + R"(, "model_type": "deepseek_v3", "q_lora_rank": null, "moe_layer_freq": 1)";

const std::string kSparseKeys =
    std::string(kLatentSizes) +
    R"(, "model_type": "glm_moe_dsa", "q_lora_rank": 24, "n_shared_experts": 1, "index_topk": 16,
       "index_n_heads": 3, "index_head_dim": 12, "mlp_layer_types": ["dense", "sparse", "sparse"])";

INSTANTIATE_TEST_SUITE_P(
    Small, StepFlops,
    ::testing::Values(
        Golden{"step3p5", kStepKeys.c_str(), 8, 64, 651583488},
        Golden{"step3p5_mtp", kStepMtpKeys.c_str(), 8, 64, 1303633920},
        Golden{"mistral4", kMistral4Keys.c_str(), 8, 64, 373555200},
        Golden{"llama", R"(, "model_type": "llama")", 8, 64, 301989888},
        Golden{"qwen2", R"(, "model_type": "qwen2")", 8, 64, 301989888},
        Golden{"qwen3", R"(, "model_type": "qwen3", "head_dim": 32)", 8, 64, 402653184},
        Golden{"qwen3_moe",
               R"(, "model_type": "qwen3_moe", "head_dim": 32, "moe_intermediate_size": 32,
                  "num_experts_per_tok": 2)",
               8, 64, 327155712},
        Golden{"mixtral", R"(, "model_type": "mixtral", "num_experts_per_tok": 2)", 8, 64, 452984832},
        Golden{"deepseek_v3", kDeepSeekKeys.c_str(), 8, 64, 392429568},
        Golden{"deepseek_v3_each", kDeepSeekEachKeys.c_str(), 8, 64, 394788864},
        Golden{"glm_moe_dsa", kSparseKeys.c_str(), 8, 64, 406880256},
        Golden{
            "gpt_oss",
            R"(, "model_type": "gpt_oss", "intermediate_size": 64, "head_dim": 16, "num_experts_per_tok": 2)",
            8, 64, 289996800},
        Golden{
            "gpt_oss_long",
            R"(, "model_type": "gpt_oss", "intermediate_size": 64, "head_dim": 16, "num_experts_per_tok": 2)",
            8, 256, 1460797440},
        Golden{"mistral", R"(, "model_type": "mistral")", 8, 64, 251658240},
        Golden{"phi3", R"(, "model_type": "phi3")", 8, 64, 251658240},
        Golden{"gemma", R"(, "model_type": "gemma", "head_dim": 256)", 8, 64, 251658240},
        Golden{"gpt2", R"(, "model_type": "gpt2", "n_embd": 64, "n_layer": 2)", 8, 64, 377487360},
        Golden{"glm4_moe",
               R"(, "model_type": "glm4_moe", "num_hidden_layers": 3, "moe_intermediate_size": 32,
                  "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1, "head_dim": 16)",
               8, 64, 390070272},
        Golden{
            "minimax_m2",
            R"(, "model_type": "minimax_m2", "num_hidden_layers": 3, "num_experts_per_tok": 2, "head_dim": 16)",
            8, 64, 654311424},
        Golden{"qwen3_5", kQwen35Keys.c_str(), 8, 64, 656277504},
        Golden{"qwen3_5_moe", kQwen35MoeKeys.c_str(), 8, 64, 618528768},
        Golden{"nemotron_h", kNemotronKeys.c_str(), 8, 64, 517472256},
        Golden{"nemotron_h_latent", kNemotronLatentKeys.c_str(), 8, 64, 477364224},
        Golden{"nemotron_h_mtp_heads", kNemotronMtpKeys.c_str(), 8, 64, 924844032}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Whole, StepFlops,
    ::testing::Values(Golden{"Llama_3_2_1B",
                             R"("model_type": "llama", "hidden_size": 2048, "num_attention_heads": 32,
                  "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256,
                  "num_hidden_layers": 16)",
                             8, 4096, 269345989066752},
                      Golden{"Qwen3_30B_A3B",
                             R"("model_type": "qwen3_moe", "hidden_size": 2048, "num_attention_heads": 32,
                  "num_key_value_heads": 4, "intermediate_size": 6144, "moe_intermediate_size": 768,
                  "num_experts_per_tok": 8, "head_dim": 128, "vocab_size": 151936, "num_hidden_layers": 48)",
                             8, 4096, 753869839663104},
                      Golden{"Mixtral_8x7B",
                             R"("model_type": "mixtral", "hidden_size": 4096, "num_attention_heads": 32,
                  "num_key_value_heads": 8, "intermediate_size": 14336, "num_experts_per_tok": 2,
                  "vocab_size": 32000, "num_hidden_layers": 32)",
                             8, 4096, 2611821152305152},
                      Golden{"DeepSeek_V3",
                             R"("model_type": "deepseek_v3", "hidden_size": 7168, "num_attention_heads": 128,
                  "num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
                  "num_experts_per_tok": 8, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
                  "qk_rope_head_dim": 64, "v_head_dim": 128, "first_k_dense_replace": 3, "vocab_size": 129280,
                  "num_hidden_layers": 61)",
                             8, 4096, 8185816824152064},
                      Golden{"gpt_oss_20b",
                             R"("model_type": "gpt_oss", "hidden_size": 2880, "num_attention_heads": 64,
                  "num_key_value_heads": 8, "intermediate_size": 2880, "num_experts_per_tok": 4, "head_dim": 64,
                  "vocab_size": 201088, "num_hidden_layers": 24)",
                             8, 4096, 750785818263552},
                      Golden{"Qwen3_Next_80B",
                             R"("model_type": "qwen3_next", "hidden_size": 2048, "num_attention_heads": 16,
                  "num_key_value_heads": 2, "num_experts": 512, "num_experts_per_tok": 10, "head_dim": 256,
                  "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "vocab_size": 151936,
                  "num_hidden_layers": 48, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
                  "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
                  "full_attention_interval": 4)",
                             8, 4096, 745133876183040}),
    [](const auto& info) { return info.param.name; });

TEST(AutoModelMfu, IsTheShareOfThePeaksOfAllRanks) {
  EXPECT_DOUBLE_EQ(automodel_mfu(1000, 8, 0.5, 989), 25.278058645096056);
  EXPECT_EQ(automodel_mfu(1000, 8, 0.5, 0), 0);
}

}  // namespace
}  // namespace heddle
