// Selection of layers by the patterns of a recipe, compared with NeMo AutoModel's ModuleMatcher.
#include <gmock/gmock.h>

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "plugins/lora/peft_units.h"

namespace heddle::tests {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kLlama =
    "{model_type: llama, vocab_size: 11, hidden_size: 8, intermediate_size: 12, num_hidden_layers: 1, "
    "num_attention_heads: 2, num_key_value_heads: 2, head_dim: 4, max_position_embeddings: 16}";
const std::string kMoe =
    "{model_type: qwen3_moe, vocab_size: 11, hidden_size: 8, intermediate_size: 12, num_hidden_layers: 1, "
    "num_attention_heads: 2, num_key_value_heads: 2, head_dim: 4, max_position_embeddings: 16, num_experts: "
    "4, "
    "num_experts_per_tok: 2, moe_intermediate_size: 6}";
const std::string kLatent =
    "{model_type: deepseek_v3, vocab_size: 11, hidden_size: 8, intermediate_size: 12, num_hidden_layers: 2, "
    "num_attention_heads: 2, num_key_value_heads: 2, q_lora_rank: 5, kv_lora_rank: 7, qk_nope_head_dim: 4, "
    "qk_rope_head_dim: 2, v_head_dim: 3, n_routed_experts: 4, n_group: 1, topk_group: 1, "
    "num_experts_per_tok: 2, n_shared_experts: 1, moe_intermediate_size: 6, first_k_dense_replace: 1, "
    "max_position_embeddings: 16}";

// Returns the last parts of the paths, and "lm_head".
std::string short_names(const std::vector<std::string>& paths) {
  std::vector<std::string> out;
  for (const std::string& path : paths) {
    std::string name = path.substr(path.rfind('.') + 1);
    const size_t end = name.rfind("_proj");
    out.push_back(end != name.npos && end + 5 == name.size() ? name.substr(0, end) : name);
  }
  return text::join(out);
}

struct Wanted {
  std::string model, section, layers;
};

TEST(LoraMatching, SelectsTheLayersOfEveryFormInRecipes) {
  const std::string projections = "gate, up, down, q, k, v, o", all = "lm_head, " + projections;
  const std::string latent = "gate, up, down, q_a, q_b, kv_b, o, gate, up, down, q_a, q_b, kv_b, o";
  const std::string latent_all =
      "lm_head, gate, up, down, q_a, q_b, kv_a_proj_with_mqa, kv_b, o, gate, up, down, q_a, q_b, "
      "kv_a_proj_with_mqa, kv_b, o";
  const std::vector<Wanted> forms = {
      {kLlama, "{target_modules: '*_proj'}", projections},
      {kLlama, "{}", projections},
      {kLlama, "{target_modules: null}", projections},
      {kLlama, "{target_modules: ['*']}", all},
      {kLlama, "{match_all_linear: True}", all},
      {kLlama, "{exclude_modules: ['*.out_proj']}", all},
      {kLlama, "{exclude_modules: ['*lm_head*', '*vision*']}", projections},
      {kLlama, "{target_modules: ['*q_proj', '*v_proj', '*wkv']}", "q, v"},
      {kLlama, "{target_modules: ['*.q_proj', '*.o_proj']}", "q, o"},
      {kLlama, "{target_modules: ['model.layers.*.self_attn.k_proj', 'model.layers.*.mlp.up_proj']}",
       "up, k"},
      {kLlama, "{target_modules: lm_head}", "lm_head"},
      {kLlama, "{target_modules: '*.self_attn.(q|k)_proj'}", "q, k"},
      {kLlama, "{target_modules: '*.[qv]_proj'}", "q, v"},
      // A dot matches any character, and `.*` any number of them.
      {kLlama, "{target_modules: 'model.layers.*q_proj'}", "q"},
      {kLlama, "{target_modules: 'modelXlayers*q_proj|*k_proj'}", "k"},
      {kMoe, "{target_modules: '*_proj'}", "q, k, v, o"},
      {kMoe, "{match_all_linear: true}", "lm_head, q, k, v, o"},
      {kMoe, "{exclude_modules: ['*.out_proj'], moe_rank_scaling: true}", "lm_head, q, k, v, o"},
      {kLatent, "{target_modules: '*_proj'}", latent},
      {kLatent, "{match_all_linear: true}", latent_all},
  };
  for (const Wanted& form : forms)
    EXPECT_EQ(short_names(adapted(form.model, form.section)), form.layers) << form.section;
}

TEST(LoraMatching, MatchesExpertsOnlyByTargetModules) {
  const std::string path = "model.layers.0.mlp.experts.";
  Units units = units_of(kMoe);
  EXPECT_THAT(adapt(units, "{target_modules: ['*.mlp.experts']}").added,
              ElementsAre(path + "lora_gate_and_up_A", path + "lora_gate_and_up_B", path + "lora_down_A",
                          path + "lora_down_B"));
  units = units_of(kMoe);
  EXPECT_THAT(adapt(units, "{match_all_linear: true}").added, Not(Contains(HasSubstr(".experts."))));
  units = units_of(kMoe);
  EXPECT_EQ(adapt(units, "{target_modules: '*', dim: 4, moe_rank_scaling: true}").note,
            "adapters of rank 4 on 5 layers, and of rank 2 on the experts of 1 layer");
}

TEST(LoraMatching, ScalesTheRankOfExpertsByTopK) {
  EXPECT_THAT(adapted(kMoe, "{target_modules: '*', dim: 1, moe_rank_scaling: true}"),
              ElementsAre("error[config] run.yaml:2 peft.moe_rank_scaling: moe_rank_scaling: dim=1 // "
                          "n_activated_experts=2 gives rank 0\n  hint: Increase dim to at least "
                          "n_activated_experts."));
  Units units = units_of(kMoe);
  EXPECT_THAT(adapt(units, "{target_modules: '*', dim: 5, moe_rank_scaling: true}").warnings,
              ElementsAre("run.yaml:2 peft.moe_rank_scaling: dim 5 is not a multiple of the 2 experts per "
                          "token: adapters of experts have rank 2"));
}

TEST(LoraSection, AcceptsTheTargetOfRecipes) {
  EXPECT_EQ(short_names(adapted(kLlama,
                                "{_target_: nemo_automodel.components._peft.lora.PeftConfig, "
                                "target_modules: lm_head, use_triton: True}")),
            "lm_head");
}

TEST(LoraSection, BuildsEveryField) {
  EXPECT_THAT(read_peft("{lora_dtype: float32, use_dora: true}").not_built, IsEmpty());
  EXPECT_THAT(read_peft("{dropout: 0.0, dropout_position: pre, use_dora: false}").not_built, IsEmpty());
}

}  // namespace
}  // namespace heddle::tests
