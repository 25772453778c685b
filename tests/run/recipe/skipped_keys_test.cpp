// Sections and keys of AutoModel's recipes that have no effect in heddle, and keys that select what is not
// built.
#include <gmock/gmock.h>

#include <algorithm>

#include "lib/run/recipe/recipe.h"
#include "tests/run/plugin_sections.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Recipe recipe_in(const std::string& yaml) {
  return tests::with_plugin_sections(read_recipe(config::read_text(yaml, "run.yaml")));
}

std::vector<std::string> skipped_in(const std::string& yaml) {
  std::vector<std::string> keys;
  for (const SkippedKey& one : recipe_in(yaml).skipped) keys.push_back(one.key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

std::string refusal_in(const std::string& yaml) {
  return tests::thrown_by([&] { recipe_in(yaml); });
}

const std::string kSomeModel = "model: {config: {model_type: llama}}\n";

TEST(SkippedSections, AreNamedEachOnce) {
  EXPECT_THAT(skipped_in("ci: {time: 1}\nskypilot: {}\nnvtx: false\nprewarm: {cublas: true}\n"
                         "compile: {enabled: true}\nbenchmark: {warmup_steps: 1}\n_parts: {a: 1}\n" +
                         kSomeModel),
              ElementsAre("benchmark", "ci", "compile", "nvtx", "prewarm", "skypilot"));
  const Recipe recipe = recipe_in("ci: 1\nnvtx: false\n" + kSomeModel);
  EXPECT_EQ(text_of(recipe.skipped, false),
            "skipped: ci, nvtx; no effect on results (heddle check --verbose prints the reasons)\n");
  EXPECT_THAT(text_of(recipe.skipped, true), HasSubstr("skipped: ci: settings of AutoModel's CI\n"));
  EXPECT_EQ(text_of({}, false), "");
}

TEST(SkippedSections, ExcludeSectionsThatAffectResults) {
  EXPECT_THAT(refusal_in("wandb: {project: x}\n" + kSomeModel), HasSubstr("unknown key 'wandb'"));
  EXPECT_THAT(skipped_in("comet: {enable: false, project_name: x}\n" + kSomeModel), ElementsAre("comet"));
}

TEST(SkippedKeys, SelectImplementationsOfAModel) {
  EXPECT_THAT(
      skipped_in("model: {config: {model_type: llama}, trust_remote_code: true, attn_implementation: sdpa, "
                 "output_hidden_states: true, force_hf: true, mtp_loss_scaling_factor: 0.1, "
                 "num_nextn_predict_layers: 0}\n"),
      ElementsAre("model.attn_implementation", "model.force_hf", "model.mtp_loss_scaling_factor",
                  "model.num_nextn_predict_layers", "model.output_hidden_states", "model.trust_remote_code"));
  const Recipe asked = recipe_in("model: {config: {model_type: llama}, num_nextn_predict_layers: 2}\n");
  EXPECT_EQ(asked.model.mtp_heads, "run.yaml:1 model.num_nextn_predict_layers");
  EXPECT_THAT(asked.not_built, IsEmpty());
}

TEST(SkippedKeys, ApplyIfTheyAffectResults) {
  const auto with = [](const std::string& keys) {
    return "model: {config: {model_type: mixtral}, backend: {" + keys + "}}\n";
  };
  const Recipe recipe =
      recipe_in(with("attn: te, rms_norm: torch_fp32, rope_fusion: true, dispatcher: deepep, "
                     "fake_balanced_gate: true, gate_precision: float32"));
  EXPECT_EQ(config::to_json(recipe.model.backend),
            R"({"fake_balanced_gate": true, "router_dtype": "float32"})");
  EXPECT_EQ(recipe.skipped.front().key, "the kernels of model.backend");
  EXPECT_THAT(recipe_in("model: {pretrained_model_name_or_path: a, backend: {fake_balanced_gate: true}}\n")
                  .model.overrides.keys.find("fake_balanced_gate"),
              ::testing::NotNull());
}

TEST(ModelOfARecipe, ReturnsFp8AsASection) {
  const auto section = [](const std::string& backend) {
    const Recipe recipe = read_recipe(config::read_text(
        "model: {config: {model_type: mixtral}, backend: {" + backend + "}}\n", "run.yaml"));
    return recipe.other_sections.size() == 1 && recipe.other_sections[0].first == "te_fp8"
               ? config::to_json(recipe.other_sections[0].second)
               : std::to_string(recipe.other_sections.size());
  };
  EXPECT_EQ(section("linear: te, te_fp8: null"), "0");
  EXPECT_EQ(section("te_fp8: {_target_: a.b.TEFp8Config, recipe: block}"),
            R"({"recipe": "block", "linear": true, "experts": false})");
  EXPECT_EQ(section("linear: torch, experts: te, te_fp8: {}"), R"({"linear": false, "experts": true})");
  EXPECT_EQ(section("linear: te, experts: te, dispatcher: torch, te_fp8: {}"),
            R"({"linear": true, "experts": false})");
}

TEST(ModelOfARecipe, NamesTheModelWhoseKeysAreOverridden) {
  const Recipe recipe = recipe_in(
      "model:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_config\n  config:\n    _target_: "
      "transformers.AutoConfig.from_pretrained\n    pretrained_model_name_or_path: org/Model\n    "
      "num_hidden_layers: 4\n");
  EXPECT_EQ(recipe.model.source, ModelSection::Source::config);
  EXPECT_EQ(recipe.model.config.as_text(), "org/Model");
  EXPECT_EQ(config::to_json(recipe.model.overrides.keys), R"({"num_hidden_layers": 4})");
  EXPECT_EQ(recipe.model.dtype, "bfloat16");
  const Recipe loaded = recipe_in(
      "model: {_target_: a.from_config, load_base_model: true, config: {pretrained_model_name_or_path: "
      "org/Model}}\n");
  EXPECT_EQ(loaded.model.source, ModelSection::Source::pretrained);
  EXPECT_EQ(loaded.model.directory, "org/Model");
  EXPECT_EQ(loaded.model.dtype, "");
  EXPECT_EQ(
      config::to_json(recipe_in("model: {config: {_target_: transformers.Qwen3MoeConfig, hidden_size: 8}}\n")
                          .model.config),
      R"({"hidden_size": 8, "model_type": "qwen3_moe"})");
}

TEST(LossOfARecipe, HasFourNames) {
  for (const char* name :
       {"MaskedCrossEntropy", "FusedLinearCrossEntropy", "TEParallelCrossEntropy", "ChunkedCrossEntropy"})
    EXPECT_EQ(refusal_in(std::string("loss_fn: {_target_: a.") + name + "}\n" + kSomeModel), "") << name;
  EXPECT_THAT(skipped_in("loss_fn: {fp32_upcast: false}\n" + kSomeModel), ElementsAre("loss_fn.fp32_upcast"));
}

}  // namespace
}  // namespace heddle
