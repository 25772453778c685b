// Values of a recipe that have several spellings.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "lib/run/recipe/recipe.h"

namespace heddle {
namespace {

Recipe read_of(const std::string& yaml) {
  return read_recipe(config::read_text("model: {config: {model_type: llama}}\n" + yaml, "run.yaml"));
}

TEST(RecipeForms, AcceptsANumberAsTheMaximumNorm) {
  EXPECT_EQ(read_of("clip_grad_norm: 0.5\n").max_norm, 0.5);
  EXPECT_EQ(read_of("clip_grad_norm: 2\n").max_norm, 2.0);
  EXPECT_EQ(read_of("clip_grad_norm: 2\n").norm_type, 2.0);
}

TEST(RecipeForms, ReadsPathsBelowTheHomeDirectory) {
  setenv("HOME", "/test/home", 1);
  const Recipe recipe = read_of("checkpoint: {checkpoint_dir: ~/runs, restore_from: ~/old}\n");
  EXPECT_EQ(recipe.checkpoint.directory, "/test/home/runs");
  EXPECT_EQ(recipe.checkpoint.restore_from, "/test/home/old");
  EXPECT_EQ(read_of("checkpoint: {checkpoint_dir: a~/b}\n").checkpoint.directory, "a~/b");
  EXPECT_EQ(
      read_recipe(config::read_text("model: {pretrained_model_name_or_path: ~/m}\n", "f")).model.directory,
      "/test/home/m");
}

}  // namespace
}  // namespace heddle
