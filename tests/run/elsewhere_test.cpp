// Sections of AutoModel's recipes that heddle does not have are refused with what stands for them here.
#include <gmock/gmock.h>

#include "lib/run/recipe/recipe.h"
#include "tests/run/plugin_sections.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

std::string elsewhere_refusal(const Node& root) {
  return tests::thrown_by([&] { tests::with_plugin_sections(read_recipe(root)); });
}

std::string elsewhere_refusal(const std::string& yaml) {
  return elsewhere_refusal(config::read_text(yaml, "run.yaml"));
}

TEST(SectionsOfRecipes, ThatAreElsewhereHereAreRefusedWithWhatToDo) {
  const std::string model = "model: {config: {model_type: llama}}\n";
  EXPECT_EQ(elsewhere_refusal("seed: 1\nrng: {seed: 1111}\n" + model),
            "error[config] run.yaml:2 rng: unknown key 'rng'\n  hint: use seed: N at the top");
  EXPECT_EQ(elsewhere_refusal("wandb: {project: x}\n" + model),
            "error[config] run.yaml:1 wandb: unknown key 'wandb'\n  hint: leave it out: metrics go to "
            "training.jsonl");
  EXPECT_EQ(
      elsewhere_refusal("validation_dataloader: {}\n" + model),
      "error[config] run.yaml:1 validation_dataloader: unknown key 'validation_dataloader'\n  hint: leave "
      "it out: validation reads its samples in the order of the files");
}

TEST(SectionsOfRecipes, ThatAreElsewhereMayBeNull) {
  EXPECT_EQ(elsewhere_refusal("rng: null\nwandb:\nmodel: {config: {model_type: llama}}\n"), "");
  const Node run = config::read_text("rng: {seed: 1111}\nmodel: {config: {model_type: llama}}\n", "run.yaml");
  EXPECT_EQ(elsewhere_refusal(config::with_override(run, "rng", "none")), "");
}

}  // namespace
}  // namespace heddle
