// Sections of a recipe: defaults, and the promised example.
#include "lib/run/recipe/recipe.h"

#include <gmock/gmock.h>

#include <cmath>
#include <string>

#include "heddle/base/error.h"
#include "lib/data/tokens/token_files.h"
#include "tests/run/plugin_sections.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;

constexpr const char* kModel = "model: {config: {model_type: llama}}\n";

Recipe read_recipe(const std::string& yaml) {
  return tests::with_plugin_sections(read_recipe(config::read_text(kModel + yaml, "run.yaml")));
}

TEST(Recipe, HasTheDefaultsOfTheRecipes) {
  const Recipe recipe = read_recipe("");
  EXPECT_EQ(recipe.seed, 42);
  EXPECT_EQ(recipe.steps.global_batch_size, 32);
  EXPECT_EQ(recipe.steps.local_batch_size, 1);
  EXPECT_EQ(recipe.steps.num_epochs, 10);
  EXPECT_EQ(recipe.steps.max_steps, std::nullopt);
  EXPECT_EQ(recipe.steps.ckpt_every_steps, 100);
  EXPECT_EQ(recipe.steps.val_every_steps, std::nullopt);
  EXPECT_EQ(recipe.optimizer.name, "AdamW");
  EXPECT_FALSE(recipe.optimizer.lr || recipe.optimizer.weight_decay);  // the optimizer's own default
  EXPECT_EQ(recipe.max_norm, 1.0);
  EXPECT_FALSE(recipe.lr_schedule.has_value());
  EXPECT_TRUE(recipe.checkpoint.enabled);
  EXPECT_EQ(recipe.checkpoint.directory, "checkpoints/");
  EXPECT_EQ(recipe.checkpoint.save_consolidated, CheckpointSection::Export::final);
  EXPECT_EQ(recipe.shuffle, Shuffle::on);
  EXPECT_THAT(recipe.not_built, ElementsAre());
}

TEST(Recipe, ReadsTheWholeExample) {
  const Recipe recipe = read_recipe(config::read_text(R"(
recipe: TrainFinetuneRecipeForNextTokenPrediction
seed: 7
step_scheduler: {global_batch_size: 8, local_batch_size: 2, max_steps: 100, num_epochs: 1, val_every_steps: 50, ckpt_every_steps: 50}
dist_env: {backend: gloo, timeout_minutes: 10}
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: models/llama
  dtype: float32
dataset:
  _target_: nemo_automodel.components.datasets.llm.nanogpt_dataset.NanogptDataset
  file_pattern: data/train*.bin
  seq_len: 64
  shuffle_files: false
dataloader: {shuffle: false}
loss_fn: {_target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy}
optimizer: {_target_: torch.optim.AdamW, lr: 0.001, betas: [0.9, 0.95], eps: 1.0e-08, weight_decay: 0.1}
lr_scheduler: {lr_decay_style: cosine, lr_warmup_steps: 10, min_lr: 0.0001}
clip_grad_norm: {max_norm: 2.0}
distributed:
  strategy: fsdp2
  tp_size: 1
checkpoint: {enabled: true, checkpoint_dir: out/, save_consolidated: final}
plugins: [acme.fsdp3]
)",
                                                      "run.yaml"));
  EXPECT_EQ(recipe.seed, 7);
  EXPECT_EQ(recipe.steps.max_steps, 100);
  EXPECT_EQ(recipe.steps.val_every_steps, 50);
  EXPECT_EQ(recipe.model.source, ModelSection::Source::pretrained);
  EXPECT_EQ(recipe.model.directory, "models/llama");
  EXPECT_EQ(recipe.model.dtype, "float32");
  EXPECT_EQ(recipe.dataset.value().target, "NanogptDataset");
  EXPECT_EQ(recipe.dataset->sequence_length, 64);
  EXPECT_EQ(recipe.shuffle, Shuffle::off);
  EXPECT_EQ(recipe.optimizer.name, "AdamW");
  EXPECT_EQ(recipe.optimizer.lr, 0.001);
  EXPECT_EQ(recipe.optimizer.weight_decay, 0.1);
  EXPECT_EQ(config::to_json(recipe.optimizer.own), R"({"betas": [0.9, 0.95], "eps": 1e-08})");
  ASSERT_TRUE(recipe.lr_schedule.has_value());
  EXPECT_EQ(recipe.lr_schedule->lr_warmup_steps, 10);
  EXPECT_EQ(recipe.lr_schedule->min_lr, 0.0001);
  EXPECT_EQ(recipe.max_norm, 2.0);
  EXPECT_EQ(recipe.checkpoint.directory, "out/");
  EXPECT_THAT(recipe.not_built, ElementsAre());
}

TEST(Recipe, DisablesClippingForNull) {
  EXPECT_EQ(read_recipe("clip_grad_norm: null\n").max_norm, std::nullopt);
  EXPECT_EQ(read_recipe("clip_grad_norm: {max_norm: none}\n").max_norm, std::nullopt);
  EXPECT_EQ(read_recipe("clip_grad_norm: {}\n").max_norm, 1.0);
  EXPECT_EQ(read_recipe("clip_grad_norm: {}\n").norm_type, 2.0);
  EXPECT_EQ(read_recipe("clip_grad_norm: {norm_type: 1}\n").norm_type, 1.0);
  for (const char* word : {"inf", ".inf", "'inf'"})
    EXPECT_TRUE(std::isinf(read_recipe(std::string("clip_grad_norm: {norm_type: ") + word + "}\n").norm_type))
        << word;
}

TEST(Recipe, ReadsNamedValidationSets) {
  const Recipe recipe = read_recipe(
      "validation_dataset: {file_pattern: a.bin, seq_len: 8}\n"
      "validation_dataset_code: {file_pattern: [b.bin, c.bin], seq_len: 8, dtype: uint16}\n");
  ASSERT_EQ(recipe.validation.size(), 2u);
  EXPECT_EQ(recipe.validation[0].name, "");
  EXPECT_EQ(recipe.validation[1].name, "code");
  const auto files = recipe::read_token_files(recipe.validation[1].section);
  EXPECT_THAT(files.patterns, ElementsAre("b.bin", "c.bin"));
  EXPECT_EQ(files.bare, TokenType::uint16);
}

TEST(Recipe, ReadsGroupsOfParameters) {
  const Recipe recipe = read_recipe("optimizer: {param_group_overrides: [{pattern: norm, wd_mult: 0}]}\n");
  ASSERT_EQ(recipe.optimizer.groups.size(), 1u);
  EXPECT_EQ(recipe.optimizer.groups[0].pattern, "norm");
  EXPECT_EQ(recipe.optimizer.groups[0].lr_mult, 1.0);
  EXPECT_EQ(recipe.optimizer.groups[0].wd_mult, 0.0);
}

}  // namespace
}  // namespace heddle
