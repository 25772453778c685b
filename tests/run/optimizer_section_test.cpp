// `optimizer:` as a recipe and the optimizer's plugin read it together.
#include <gmock/gmock.h>

#include "lib/run/recipe/recipe.h"
#include "thrown.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Read {
  OptimizerSection section;
  std::vector<std::string> not_built;
};

Read read_section(const Node& root) {
  PluginRegistry plugins({HEDDLE_BINARY_DIR "/plugins"});
  Read out{read_recipe(root).optimizer, {}};
  resolve_optimizer(out.section, plugins, out.not_built);
  return out;
}
Read read_section(const std::string& yaml) {
  return read_section(
      config::read_text("model: {config: {model_type: llama}}\noptimizer: " + yaml + "\n", "run.yaml"));
}
std::string section_refusal(const std::string& yaml) {
  return tests::thrown_by([&] { read_section(yaml); });
}

TEST(OptimizerSection, HasTheDefaultsOfTheOptimizerThatItNames) {
  const Read none = read_section("{}"), adam = read_section("{_target_: torch.optim.Adam}"),
             adamw = read_section("{_target_: optim.py:adamw, lr: 0.5, betas: [0.8, 0.9]}");
  EXPECT_EQ(none.section.name, "AdamW");
  EXPECT_EQ(none.section.lr, 1e-4);
  EXPECT_EQ(none.section.weight_decay, 0.01);
  EXPECT_EQ(adam.section.name, "Adam");
  EXPECT_EQ(adam.section.weight_decay, 0.0);
  EXPECT_EQ(adamw.section.name, "AdamW");
  EXPECT_EQ(adamw.section.lr, 0.5);
  EXPECT_EQ(config::to_json(*adamw.section.fields.find("betas")), "[0.8, 0.9]");
  EXPECT_EQ(config::to_json(*adam.section.fields.find("eps")), "1e-08");
  EXPECT_EQ(adam.section.fields.find("lr"), nullptr);
  for (const Read* read : {&none, &adam, &adamw}) {
    EXPECT_TRUE(read->not_built.empty());
    EXPECT_EQ(read->section.make()->name(), read->section.name);
  }
}

TEST(OptimizerSection, HandsRatesOfSomeParametersAsFactorsOfItsOwn) {
  const Read muon = read_section("{_target_: dion.Muon, lr: 5e-4, scalar_lr: 1.0e-4, embed_lr: 1e-4}");
  EXPECT_TRUE(muon.not_built.empty());
  EXPECT_EQ(config::to_json(*muon.section.fields.find("scalar_lr")), "0.0001");
  EXPECT_EQ(muon.section.make()->name(), "Muon");
  EXPECT_THAT(
      section_refusal("{_target_: dion.Muon, lr: 0, lm_head_lr: 0.1}"),
      HasSubstr("run.yaml:2 optimizer.lm_head_lr: lm_head_lr is a rate beside an lr of 0\n  hint: give lr"));
}

TEST(OptimizerSection, KeepsMasterWeightsForFlashAdamWByDefault) {
  const Read flash = read_section("{_target_: flashoptim.FlashAdamW, master_weight_bits: 24, eps: 1e-8}");
  EXPECT_EQ(flash.section.name, "FlashAdamW");
  EXPECT_TRUE(flash.section.master_weights);
  EXPECT_TRUE(flash.not_built.empty());
  EXPECT_EQ(flash.section.make()->name(), "FlashAdamW");
  EXPECT_TRUE(read_section("{_target_: flashoptim.FlashAdamW}").section.master_weights);
  EXPECT_FALSE(
      read_section("{_target_: flashoptim.FlashAdamW, master_weight_bits: null}").section.master_weights);
  EXPECT_FALSE(read_section("{_target_: torch.optim.AdamW}").section.master_weights);
  EXPECT_THAT(section_refusal("{_target_: flashoptim.FlashAdamW, master_weight_bits: 20}"),
              HasSubstr("master_weight_bits must be 24, 32 or null, got 20"));
}

TEST(OptimizerSection, HasKeysForNonMatricesUnderMuon) {
  const Read muon =
      read_section("{_target_: dion.Muon, scalar_betas: [0.9, 0.999], scalar_eps: 1e-8, use_triton: false}");
  EXPECT_TRUE(muon.not_built.empty());
  EXPECT_EQ(config::to_json(*muon.section.fields.find("scalar_betas")), "[0.9, 0.999]");
  EXPECT_THAT(section_refusal("{_target_: dion.Muon, scalar_betas: [0.9]}"),
              HasSubstr("optimizer.scalar_betas: expected two numbers from 0 to below 1, got a list"));
}

TEST(OptimizerSection, RefusesAnOptimizerThatNoPluginOffers) {
  EXPECT_THAT(section_refusal("{_target_: torch.optim.AdmW}"),
              HasSubstr("run.yaml:2 optimizer._target_: there is no optimizer 'AdmW'; available: "));
  EXPECT_THAT(section_refusal("{_target_: torch.optim.AdmW}"), HasSubstr("did you mean 'AdamW'?"));
}

TEST(OptimizerSection, RefusesUnknownKeysAndValuesWithTheLine) {
  EXPECT_THAT(section_refusal("\n  learning: 1"),
              HasSubstr("run.yaml:3 optimizer.learning: unknown key 'learning'"));
  EXPECT_THAT(section_refusal("\n  learning: 1"), HasSubstr("the keys of AdamW are _target_, lr, "));
  EXPECT_THAT(section_refusal("\n  weight_deca: 1"), HasSubstr("did you mean 'weight_decay'?"));
  EXPECT_THAT(section_refusal("{beta: 1}"), HasSubstr("did you mean 'betas'?"));
  EXPECT_THAT(section_refusal("{betas: 0.9}"), HasSubstr("run.yaml:2 optimizer.betas: expected a list"));
  EXPECT_THAT(section_refusal("{betas: [0.9]}"),
              HasSubstr("run.yaml:2 optimizer.betas: betas must be two numbers"));
  EXPECT_THAT(section_refusal("{betas: [0.9, 1.0]}"), HasSubstr("betas must be from 0 to below 1"));
  EXPECT_THAT(section_refusal("{eps: -1}"), HasSubstr("run.yaml:2 optimizer.eps: "));
  EXPECT_THAT(section_refusal("{weight_decay: -1}"), HasSubstr("weight_decay must be 0 or more"));
  EXPECT_THAT(section_refusal("{decoupled_weight_decay: true}"), HasSubstr("unknown key"));  // Adam's
}

TEST(OptimizerSection, NamesAnOverrideOfAKeyThatDoesNotExist) {
  const Node root = config::with_override(
      config::read_text("model: {config: {model_type: llama}}\n", "run.yaml"), "optimizer.lrr", "0.1");
  const std::string said = tests::thrown_by([&] { read_section(root); });
  EXPECT_THAT(said, HasSubstr("--optimizer.lrr"));
  EXPECT_THAT(said, HasSubstr("did you mean 'lr'?"));
}

TEST(OptimizerSection, ListsWhatIsNotBuilt) {
  EXPECT_THAT(read_section("{amsgrad: true}").not_built,
              ElementsAre("optimizer.amsgrad: the fused kernel runs without it"));
}

}  // namespace
}  // namespace heddle
