// The sections of a recipe: defaults, the promised example, and a message for each thing that is wrong.
#include "lib/run/recipe/recipe.h"

#include <gmock/gmock.h>

#include <cmath>
#include <string>

#include "heddle/base/error.h"
#include "lib/run/recipe/token_files.h"
#include "tests/run/plugin_sections.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kModel = "model: {config: {model_type: llama}}\n";

Recipe read_recipe(const std::string& yaml) {
  return tests::with_plugin_sections(read_recipe(config::read_text(kModel + yaml, "run.yaml")));
}

struct Case {
  std::string yaml, message;
};

void expect_refusals(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    try {
      read_recipe(one.yaml);
      ADD_FAILURE() << "was taken: " << one.yaml;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::config) << one.yaml;
      EXPECT_THAT(error.what(), HasSubstr(one.message)) << one.yaml;
    }
  }
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
  EXPECT_FALSE(recipe.optimizer.lr || recipe.optimizer.weight_decay);  // the optimizer's own
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

TEST(Recipe, TakesNullAsNoClipping) {
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
  expect_refusals(
      {{"validation_dataset: {file_pattern: a.bin, seq_len: 8}\n"
        "validation_dataset_default: {file_pattern: b.bin, seq_len: 8}\n",
        "validation_dataset_default: validation_dataset is the set 'default' already"}});
}

TEST(Recipe, ReadsGroupsOfParameters) {
  const Recipe recipe = read_recipe("optimizer: {param_group_overrides: [{pattern: norm, wd_mult: 0}]}\n");
  ASSERT_EQ(recipe.optimizer.groups.size(), 1u);
  EXPECT_EQ(recipe.optimizer.groups[0].pattern, "norm");
  EXPECT_EQ(recipe.optimizer.groups[0].lr_mult, 1.0);
  EXPECT_EQ(recipe.optimizer.groups[0].wd_mult, 0.0);
}

TEST(Recipe, RefusesUnknownKeysWithTheLineAndTheNearestKey) {
  expect_refusals({
      {"optimiser: {}\n", "run.yaml:2 optimiser: unknown key 'optimiser'\n  hint: did you mean 'optimizer'?"},
      {"step_scheduler: {max_step: 3}\n", "did you mean 'max_steps'?"},
      {"checkpoint: {checkpoint_dirs: a}\n", "did you mean 'checkpoint_dir'?"},
      {"model: 3\n", "run.yaml:2"},
  });
}

TEST(Recipe, RefusesComponentsThatItDoesNotHave) {
  expect_refusals({
      {"loss_fn: {_target_: losses.KDLoss}\n", "there is: MaskedCrossEntropy"},
      {"dataloader: {_target_: x.DataLouder}\n", "unknown component 'x.DataLouder'"},
      {"dataloader: {collate_fn: my.own_default_collater}\n",
       "unknown component 'my.own_default_collater'; there is: default_collater, default_collate, "
       "default_convert"},
      {"dataset: {file_pattern: a, seq_len: 1, dtype: my.uint16}\n", "tokens are integers of 8 to 64 bits"},
      {"recipe: my.Recipe\n", "unknown component 'my.Recipe'; there is: TrainFinetuneRecipeForNextTokenPre"},
      {"recipe: {_target_: my.Recipe}\n", "run.yaml:2 recipe._target_: unknown component 'my.Recipe'"},
      {"recipe: {a: b}\n", "run.yaml:2 recipe: expected a word, got a map"},
  });
}

TEST(Recipe, RefusesWrongTypes) {
  expect_refusals({
      {"optimizer: {lr: fast}\n", "run.yaml:2 optimizer.lr: expected a number"},
      {"optimizer: {param_group_overrides: [{pattern: '('}]}\n", "not a regular expression: '('"},
      {"seed: word\n", "run.yaml:2 seed"},
      {"seed: -1\n", "seed must be 0 or more, got -1"},
      {"dataset: {seq_len: 8}\n", "file_pattern is missing"},
      {"dataset: {file_pattern: a}\n", "seq_len is missing"},
      {"dataset: {file_pattern: a, seq_len: 0}\n", "seq_len must be greater than 0, got 0"},
      {"dataset: {file_pattern: a, seq_len: 8, dtype: float32}\n", "tokens are integers of 8 to 64 bits"},
      {"clip_grad_norm: {max_norm: 0}\n", "max_norm must be greater than 0, or null for no clipping"},
      {"clip_grad_norm: {norm_type: 0}\n", "norm_type must be above 0, or inf, got 0"},
      {"plugins: acme\n", "expected a list of plugin names, files and directories"},
  });
}

TEST(Recipe, RefusesStepsAsTheSchedulerDoes) {
  expect_refusals({
      {"step_scheduler: {global_batch_size: 0}\n", "global_batch_size must be greater than 0, got 0"},
      {"step_scheduler: {local_batch_size: -1}\n", "local_batch_size must be greater than 0, got -1"},
      {"step_scheduler: {num_epochs: 0}\n",
       "num_epochs must be greater than 0 or None if max_steps is provided, got 0"},
      {"step_scheduler: {max_steps: 0}\n", "max_steps must be greater than 0, got 0"},
      {"step_scheduler: {ckpt_every_steps: 0}\n", "ckpt_every_steps must be greater than 0, got 0"},
      {"step_scheduler: {val_every_steps: 0}\n", "val_every_steps must be greater than 0 if not None, got 0"},
      {"step_scheduler: {log_remote_every_steps: 0}\n",
       "log_remote_every_steps must be greater than 0, got 0"},
      {"step_scheduler: {loss_average_window_steps: 0}\n",
       "loss_average_window_steps must be greater than 0, got 0"},
      {"step_scheduler: {gc_every_steps: 0}\n", "gc_every_steps must be greater than 0 if not None, got 0"},
      {"step_scheduler: {start_step: -1}\n", "start_step must be greater than or equal to 0, got -1"},
      {"step_scheduler: {start_epoch: -2}\n", "start_epoch must be greater than or equal to 0, got -2"},
      {"step_scheduler: {preemption_signal: 1.5}\n", "expected the name or number of a signal"},
      {"step_scheduler: {preemption_signal: SIGKILL}\n",
       "'SIGKILL' is not a signal that a run can save and end on; there are: SIGTERM, SIGINT, SIGUSR1, "
       "SIGUSR2, "
       "SIGHUP, SIGQUIT, SIGALRM, SIGXCPU"},
      {"step_scheduler: {preemption_signal: [SIGTERM, 9]}\n", "9 is not a signal that a run can save"},
      {"step_scheduler: {preemption_signal: 4294967311}\n", "4294967311 is not a signal that a run can save"},
      {"step_scheduler: {local_batch_size: 4611686018427387904}\n",
       "local_batch_size must be at most 2147483647, got 4611686018427387904"},
      {"step_scheduler: {global_batch_size: 2147483648}\n", "global_batch_size must be at most 2147483647"},
      {"dataset: {file_pattern: a, seq_len: 9223372036854775807}\n", "seq_len must be at most 2147483647"},
      {"step_scheduler: {max_steps: 1e3}\n", "expected an integer, got 1000.0\n  hint: write 1000"},
  });
}

TEST(Recipe, RefusesSchedulesThatMakeNoSense) {
  expect_refusals({
      {"lr_scheduler: {lr_warmup_steps: 0.1}\n", "lr_warmup_steps must be an integer step count, got 0.1"},
      {"lr_scheduler: {lr_warmup_steps: -3}\n", "lr_warmup_steps must be an integer step count, got -3"},
      {"lr_scheduler: {lr_decay_style: cosin}\n", "unknown style 'cosin'"},
      {"lr_scheduler: {lr_decay_style: cosin}\n", "did you mean 'cosine'?"},
      {"lr_scheduler: {lr_decay_style: WSD}\n", "the style WSD needs wsd_decay_steps and lr_wsd_decay_style"},
      {"lr_scheduler: {override_opt_param_scheduler: true}\n", "both override and use-checkpoint are set."},
  });
}

TEST(Recipe, RefusesCheckpointsThatMakeNoSense) {
  expect_refusals({
      {"checkpoint: {model_save_format: pickle}\n",
       "Unsupported model save format: pickle. Supported formats: ['safetensors', 'torch_save']"},
      {"checkpoint: {allow_legacy_pickle_restore: 1}\n",
       "checkpoint.allow_legacy_pickle_restore must be a boolean"},
      {"checkpoint: {max_recent_checkpoints: 0}\n",
       "checkpoint.max_recent_checkpoints must be unset or a positive integer"},
      {"checkpoint: {consolidation_timeout_minutes: 0}\n",
       "checkpoint.consolidation_timeout_minutes must be greater than 0"},
      {"checkpoint: {consolidation_timeout_minutes: 1e15}\n",
       "checkpoint.consolidation_timeout_minutes must be at most 525600 (a year)"},
      {"checkpoint: {save_consolidated: sometimes}\n", "expected false, final or every"},
  });
}

TEST(Recipe, TakesTheTypeOfALoaderForMegatronsBlendsAlone) {
  const std::string blend = "dataset: {_target_: x.MegatronPretraining, paths: a}\n";
  EXPECT_THAT(read_recipe(blend + "dataloader: {dataloader_type: single}\n").not_built, ElementsAre());
  EXPECT_THAT(
      read_recipe(blend + "dataloader: {dataloader_type: cyclic}\n").not_built,
      ElementsAre("dataloader.dataloader_type: a blend's samples are trained on in the order of its index"));
  expect_refusals({{"dataset: {file_pattern: a, seq_len: 8}\ndataloader: {dataloader_type: single}\n",
                    "dataloader_type: dataloader_type is only supported by Megatron dataset configs"}});
}

TEST(Recipe, RequiresATeacherForDistillation) {
  expect_refusals({{"recipe: nemo_automodel.KnowledgeDistillationRecipeForNextTokenPrediction\n",
                    "recipe: the section teacher_model is missing"}});
}

TEST(Recipe, NamesWhatComesLater) {
  EXPECT_THAT(read_recipe("checkpoint: {model_repo_id: a/b, restore_from: LATEST}\n").not_built,
              ElementsAre("checkpoint.model_repo_id: models are not downloaded"));
  EXPECT_THAT(read_recipe("step_scheduler: {start_step: 3}\n").not_built,
              ElementsAre("step_scheduler.start_step: a checkpoint says where a run goes on"));
  EXPECT_THAT(read_recipe("dataset: {file_pattern: a, seq_len: 8, align_to_bos: true}\n").not_built,
              ElementsAre("dataset.align_to_bos: samples are cut one after the other"));
}

Error refusal_of_model(const std::string& yaml) {
  try {
    read_recipe(config::read_text(yaml, "run.yaml"));
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::internal, "", "was taken: " + yaml);
}

TEST(Recipe, RefusesModelsThatAreNotSaidOrSaidTwice) {
  EXPECT_THAT(refusal_of_model("seed: 1\n").what(),
              HasSubstr("the model is missing: neither pretrained_model_name_or_path nor config is given"));
  EXPECT_THAT(refusal_of_model("model: {_target_: a.from_pretrained, config: {}}\n").what(),
              HasSubstr("from_pretrained takes config beside pretrained_model_name_or_path only"));
  EXPECT_THAT(
      refusal_of_model("model: {_target_: a.from_config, config: {}, pretrained_model_name_or_path: a}\n")
          .what(),
      HasSubstr("from_config takes no pretrained_model_name_or_path"));
  EXPECT_THAT(
      refusal_of_model("model: {_target_: nemo_automodel.NeMoAutoModelForImageTextToText.from_config,\n"
                       "        config: {}}\n")
          .what(),
      HasSubstr("'NeMoAutoModelForImageTextToText' is not built; there is: NeMoAutoModelForCausalLM"));
  EXPECT_THAT(refusal_of_model("model_type: llama\nhidden_size: 8\n").what(),
              HasSubstr("this is a model's config.json; a configuration names it: model: {config: PATH}"));
  EXPECT_THAT(refusal_of_model("model: {config: {}, dtype: float16}\n").what(),
              HasSubstr("parameters are stored in float32 or bfloat16"));
  EXPECT_THAT(refusal_of_model("model: {config: {}, dtype: float32, torch_dtype: bfloat16}\n").what(),
              HasSubstr("dtype and torch_dtype differ"));
}

}  // namespace
}  // namespace heddle
