// The section `optimizer:`, which the recipe and the optimizer's plugin read together.
#include <gtest/gtest.h>

#include "lib/run/recipe/recipe.h"

namespace heddle {
namespace {

struct Read {
  OptimizerSection section;
  std::vector<std::string> not_built;
};

Read read_section(const Node& root) {
  PluginRegistry plugins({HEDDLE_BINARY_DIR "/plugins"});
  Read out{read_recipe(root).optimizer, {}};
  out.section = resolve_optimizer(out.section, plugins, out.not_built);
  return out;
}
Read read_section(const std::string& yaml) {
  return read_section(
      config::read_text("model: {config: {model_type: llama}}\noptimizer: " + yaml + "\n", "run.yaml"));
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

TEST(OptimizerSection, ConvertsSeparateLearningRatesToFactors) {
  const Read muon = read_section("{_target_: dion.Muon, lr: 5e-4, scalar_lr: 1.0e-4, embed_lr: 1e-4}");
  EXPECT_TRUE(muon.not_built.empty());
  EXPECT_EQ(config::to_json(*muon.section.fields.find("scalar_lr")), "0.0001");
  EXPECT_EQ(muon.section.make()->name(), "Muon");
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
}

TEST(OptimizerSection, HasKeysForNonMatricesUnderMuon) {
  const Read muon =
      read_section("{_target_: dion.Muon, scalar_betas: [0.9, 0.999], scalar_eps: 1e-8, use_triton: false}");
  EXPECT_TRUE(muon.not_built.empty());
  EXPECT_EQ(config::to_json(*muon.section.fields.find("scalar_betas")), "[0.9, 0.999]");
}

}  // namespace
}  // namespace heddle
