// What a run is refused for before any rank starts: a recipe, what is changed in it, and the error's text.
// `heddle train` gives the same errors: tests/flow/check_test.cpp.
#include <sys/stat.h>

#include "lib/run/data/write_tokens.h"
#include "trainer/checked.h"

namespace heddle::tests {
namespace {

using ::testing::HasSubstr;

// FOLDER stands for the test's directory, here and in rows.
constexpr const char* kRecipe = R"(seed: 7
step_scheduler: {global_batch_size: 8, local_batch_size: 2, max_steps: 12, num_epochs: 1}
model:
  config: {model_type: llama, vocab_size: 256, hidden_size: 24, intermediate_size: 40, num_hidden_layers: 2,
           num_attention_heads: 3, num_key_value_heads: 1, max_position_embeddings: 32}
  dtype: float32
dataset:
  file_pattern: FOLDER/train.bin
  seq_len: 16
optimizer: {lr: 0.003, weight_decay: 0.1}
distributed:
  strategy: fsdp2
checkpoint: {checkpoint_dir: FOLDER/run}
)";

struct Row {
  std::vector<cli::Override> changes;
  std::string text;
  int ranks = 2;
};

class RefusedRuns : public Checked {
 protected:
  RefusedRuns() {
    file("text.txt", std::string(4000, 'a'));
    write_byte_tokens(std::vector{here("FOLDER/text.txt")}, folder_ / "train.bin");
    ::mkfifo(here("FOLDER/fifo").c_str(), 0600);
  }

  std::string here(std::string text) const {
    for (size_t at; (at = text.find("FOLDER")) != text.npos;) text.replace(at, 6, folder_.path().string());
    return text;
  }

  void expect_refused(const std::string& yaml, const std::vector<cli::Override>& changes,
                      const std::string& text, int ranks) {
    cli::CheckCommand command;
    command.configs = {file("run.yaml", here(yaml))};
    for (const auto& [key, value] : changes) command.overrides.push_back({key, here(value)});
    command.world_sizes = {ranks};
    EXPECT_NE(run(command), 0) << text;
    EXPECT_THAT(err_ + error_, HasSubstr(here(text)));
  }

  // docs.bin, of samples of 3 to 20 tokens, and docs.lengths.
  void write_samples() const {
    std::string lengths;
    int tokens = 0;
    for (int length = 3; length <= 20; tokens += length++) lengths += std::to_string(length) + "\n";
    file("docs.lengths", lengths);
    write_byte_tokens(std::vector{file("docs.txt", std::string(tokens, 'a'))}, folder_ / "docs.bin");
  }

  void expect_all(const std::vector<Row>& rows, const std::vector<cli::Override>& always = {}) {
    for (const Row& row : rows) {
      std::vector<cli::Override> changes = always;
      changes.insert(changes.end(), row.changes.begin(), row.changes.end());
      expect_refused(kRecipe, changes, row.text, row.ranks);
    }
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
  }
};

// What no override can say: `old` of the recipe becomes `changed`, or that is added at its end.
TEST_F(RefusedRuns, NameTheTextOfTheRecipe) {
  struct Edit {
    std::string old, changed, text;
  };
  const Edit edits[] = {{"", "optimiser: {}",
                         "run.yaml:14 optimiser: unknown key 'optimiser'\n  hint: did you mean 'optimizer'?"},
                        {"", "seed: 8", "the key 'seed' is repeated"},
                        {"", "model: [1", "YAML syntax"},
                        {"  seq_len: 16\n", "", "seq_len is missing"},
                        {"dataset:\n", "validation_dataset:\n", "the section dataset is missing"},
                        {"", "plugins: [./none.so]", "there is no such plugin file or directory: "},
                        {"", "plugins: [acme.fsdp3]", "error[plugin_missing]"}};
  for (const Edit& edit : edits) {
    std::string yaml = kRecipe;
    yaml.replace(edit.old.empty() ? yaml.size() : yaml.find(edit.old), edit.old.size(),
                 edit.changed + (edit.old.empty() ? "\n" : ""));
    expect_refused(yaml, {}, edit.text, 2);
  }
}

TEST_F(RefusedRuns, NameTheirKeysAndSteps) {
  expect_all({
      {{{"optimizer.lrr", "1"}}, "--optimizer.lrr: unknown key 'lrr'\n  hint: did you mean 'lr'?"},
      {{{"optimizer.lr", "fast"}}, "--optimizer.lr: expected a number, got 'fast'"},
      {{{"optimizer._target_", "torch.optim.SGD"}}, "there is no optimizer 'SGD'"},
      {{{"dist_env.timeout_minutes", "0"}}, "--dist_env.timeout_minutes: timeout_minutes must be above 0"},
      {{{"dist_env.timeout_minutes", "1e15"}}, "timeout_minutes must be from 0.001 to 525600"},
      {{{"dist_env.backend", "mpi"}}, "expected one of gloo"},
      {{{"step_scheduler.max_steps", "1e3"}}, "expected an integer, got 1000.0"},
      {{{"step_scheduler.local_batch_size", "4611686018427387904"}}, "must be at most 2147483647"},
      {{{"step_scheduler.global_batch_size", "6"}}, "global_batch_size (6) must be divisible by"},
      {{},
       "step_scheduler.global_batch_size: global_batch_size (8) must be divisible by local_batch_size * "
       "dp_size (2 * 3)",
       3},
      {{{"lr_scheduler", "{lr_warmup_steps: 20}"}},
       "lr_warmup_steps (20) must be below lr_decay_steps (12), which is the length of the run where it is "
       "not given"},
      {{{"checkpoint.model_repo_id", "a/b"}},
       "error[not_built] --checkpoint.model_repo_id: models are not downloaded"},
      {{{"checkpoint.restore_from", "gone"}}, "neither"},
      {{{"checkpoint.best_metric_key", "other"}}, "there is no validation set 'other'"},
      {{{"validation_dataset_small", "{sq_len: 4}"}}, "--validation_dataset_small validation_dataset_small"},
      {{{"tensorbord", "{}"}}, "unknown key 'tensorbord'\n  hint: did you mean 'tensorboard'?"},
      {{{"tensorboard.dirr", "x"}}, "unknown key 'dirr'\n  hint: did you mean 'dir'?"},
      {{{"peft.target_modules", "*.down"}},
       "error[config] --peft.target_modules: a value that begins with * is an anchor's name in YAML: *.down\n"
       "  hint: quote it for YAML too: --peft.target_modules \"'*.down'\""},
      {{{"dataset.file_pattern", "{{ messages[0].content }} and {{ messages[1].content }}"}},
       "no file matches '{{ messages[0].content }} and {{ messages[1].content }}'"},
      {{{"dataset.file_pattern", "{a: ${HOME}/x}"}},
       "YAML syntax: end of map flow not found\n  hint: Put the value in quotes: in YAML { begins a map"},
  });
}

TEST_F(RefusedRuns, NameTheirModels) {
  expect_all({
      {{{"model.config.model_type", "gpt9"}}, "model_type 'gpt9' is not built"},
      {{{"model.config.hidden_size", "25"}}, "hidden_size 25 is not a multiple of num_attention_heads 3"},
      {{{"model.dtype", "fp32"}}, "unknown dtype 'fp32'"},
      {{{"model", "{pretrained_model_name_or_path: /nowhere}"}}, "model: '/nowhere' is not there"},
      {{{"distributed.tp_size", "2"}}, "num_key_value_heads"},
  });
}

TEST_F(RefusedRuns, NameTheirData) {
  const std::string set = "{_target_: MockIterableDataset, seq_len: ";
  const auto mock = [&](const std::string& rest) { return cli::Override{"dataset", set + rest + "}"}; };
  std::filesystem::copy(folder_ / "train.bin", folder_ / "short.bin");
  std::filesystem::resize_file(folder_ / "short.bin", 3001);
  expect_all({
      {{{"dataset.file_pattern", "FOLDER/none*.bin"}}, "no file matches 'FOLDER/none*.bin'"},
      {{{"dataset.file_pattern", "FOLDER/fifo"}}, "is a FIFO; a regular file is expected"},
      {{{"dataset.file_pattern", "FOLDER/text.txt"}}, "error[input] FOLDER/text.txt: not a token file"},
      {{{"dataset.file_pattern", "FOLDER/short.bin"}}, "short.bin: the file is cut: the header says"},
      {{{"dataset.seq_len", "64"}}, "seq_len 64 is longer than the model's 32 positions"},
      {{{"validation_dataset", "{file_pattern: none/v.bin, seq_len: 4}"}}, "no file matches 'none/v.bin'"},
      {{{"validation_dataset_far", set + "64, num_samples: 4}"}},
       "hint: make validation_dataset_far.seq_len smaller"},
      {{{"dataset", "{_target_: a.MockIterableDatasets}"}},
       "_target_: unknown component 'a.MockIterableDatasets'; there is: "},
      {{{"dataset", "{_target_: a.MockIterableDatasets}"}}, "\n  hint: did you mean 'MockIterableDataset'?"},
      {{{"dataset", "{_target_: MockIterableDataset, seq_length: 12}"}}, "unknown key 'seq_length'"},
      {{mock("0")}, "seq_len"},
      {{mock("33")}, "seq_len 33 is longer than the model's 32 positions"},
      {{mock("8, vocab_size: 257")}, "vocab_size is 257, and the model's vocabulary has 256 tokens"},
      {{mock("8, batch_size: 1")},
       "batch_size is 1, and a microbatch has 2 rows (step_scheduler.local_batch_size)"},
      {{mock("8"), {"dataloader.batch_size", "3"}},
       "batch_size is 3, and step_scheduler.local_batch_size 2: a microbatch has one size"},
      {{mock("8, num_samples: 40, limit_dataset_samples: 0")},
       "limit_dataset_samples must be greater than 0 or null, got 0"},
      {{{"dataset", "{_target_: build_unpacked_dataset, mean_len: 40}"}},
       "tokens, more than the model's 32 positions"},
      {{{"dataset", "{_target_: build_unpacked_dataset, vocab_size: 300, max_sentence_len: 9}"}},
       "vocab_size is 300, and the model's vocabulary has 256 tokens"},
  });
}

TEST_F(RefusedRuns, NameTheirTopology) {
  expect_all({
      {{{"distributed.strategy", "fsdp9"}}, "Unknown strategy: fsdp9"},
      {{{"distributed._target_", "my_trainer.Manager"}}, "unknown component 'my_trainer.Manager'"},
      {{{"distributed.tp_size", "3"}}, "world_size (2) must be divisible by"},
      {{{"distributed.tp_sise", "2"}}, "Unknown options for strategy 'fsdp2': ['tp_sise']"},
      {{{"distributed.ep_size", "2"}},
       "error[config] --distributed.ep_size: ep_size is 2, and the model has no experts"},
      {{{"distributed", "{strategy: megatron_fsdp, megatron_fsdp_unit_modules: [no.such.Layer]}"}},
       "no.such.Layer"},
      {{{"distributed", "{strategy: megatron_fsdp, nccl_ub: true}"}},
       "error[not_built] --distributed distributed.nccl_ub: needs GPUs whose NCCL buffers are registered, "
       "which heddle does not do yet"},
      {{{"distributed.pp_size", "2"}}, "no `distributed.pipeline` block"},
  });
}

TEST_F(RefusedRuns, NameTheirPipelines) {
  const std::string block = "distributed.pipeline.";
  file("stuck.csv", "0F0,0F1,0B0,0B1\n1B0,1F0,1F1,1B1\n");
  expect_all(
      {
          {{{block + "pp_microbatch_size", "3"}},
           "local_batch_size must be divisible by microbatch_size: 2 and 3"},
          {{{block + "pp_schedule", "1f2b"}},
           "Unknown schedule '1f2b'. The available schedules are ['1f1b', "},
          {{{block + "pp_schedule", "1f2b"}}, "\n  hint: did you mean '1f1b'?"},
          {{{block + "pp_schedule_csv", "nowhere.csv"}},
           "The specified path nowhere.csv does not exist or is not a file."},
          {{{block + "pp_schedule_csv", "FOLDER/stuck.csv"}}, "1B0"},
          {{{block + "loss_fn", "no.such.loss"}}, "unknown component 'no.such.loss'"},
          {{{block + "layers_per_stage", "3"}}, "must be divisible by pipeline parallel size"},
          {{{block + "pp_post_validation", "true"}, {"clip_grad_norm.norm_type", "inf"}},
           ".pp_post_validation: post-validation passes a sum of squares along the pipeline"},
          {{{block + "pp_post_validation", "true"}, {"distributed.strategy", "megatron"}},
           "pp_post_validation: an update cannot be undone once the next step has begun: the strategy "
           "'megatron' does not forget forwards\n  hint: set pp_post_validation: false"},
          {{{"validation_samples", "{prompts: [a]}"}},
           "validation_samples is not built for the stages of a pipeline (pp_size 2)\n  hint: leave it out, "
           "and ask a checkpoint: heddle generate RUN --prompt TEXT"},
      },
      {{"distributed.pp_size", "2"}, {"distributed.pipeline", "{pp_microbatch_size: 1}"}});
}

// A block without effect is checked all the same.
TEST_F(RefusedRuns, NameThePipelineBlockOfASingleStage) {
  const std::string block = "distributed.pipeline.";
  expect_all(
      {
          {{{block + "pp_schedule", "1f2b"}},
           "Unknown schedule '1f2b'. The available schedules are ['1f1b', "},
          {{{block + "pp_schedule_csv", "nowhere.csv"}},
           "The specified path nowhere.csv does not exist or is not a file."},
          {{{block + "pp_microbatch_size", "-3"}}, "pp_microbatch_size: expected at least 1, got -3"},
          {{{block + "rubbish", "1"}}, "unknown key 'rubbish'"},
      },
      {{"distributed.pipeline", "{pp_microbatch_size: 1}"}});
}

TEST_F(RefusedRuns, NameTheirValidationSamples) {
  const std::vector<cli::Override> asked = {{"validation_samples", "{prompts: [a]}"}};
  expect_all(
      {
          {{{"distributed.cp_size", "2"}},
           "validation_samples is not built for sequences that are split over ranks (cp_size 2)"},
          {{{"validation_samples.chat", "true"}},
           "the model is trained on bytes, which have no chat template\n  hint: leave "
           "validation_samples.chat out"},
          {{{"validation_samples.prompts", "[]"}}, "expected a list of texts, got an empty list"},
          {{{"validation_samples.prompts", "[3]"}},
           "expected a text that is not empty, got 3\n  hint: quote the prompt"},
          {{{"validation_samples.prompt", "a"}}, "unknown key 'prompt'"},
          {{{"validation_samples.temperature", "-1"}}, "temperature"},
      },
      asked);
}

TEST_F(RefusedRuns, NameTheirBenchmark) {
  expect_all(
      {{{{"step_scheduler.max_steps", "null"}},
        "step_scheduler: max_steps is missing\n  hint: a benchmark makes step_scheduler.max_steps steps"},
       {{{"benchmark.peak_tflops", "0"}}, "peak_tflops must be a finite value greater than zero"},
       {{{"benchmark.warmup_steps", "-1"}}, "warmup_steps must be 0 or more, got -1"},
       {{{"dataset", "{_target_: mock.build_unpacked_dataset, num_sentences: 20, max_sentence_len: 30}"}},
        "seq_len is missing\n  hint: a benchmark counts the operations of rows of one length"}},
      {{"recipe", "BenchmarkingRecipeForNextTokenPrediction"}});
}

TEST_F(RefusedRuns, NameTheirPackedSequences) {
  write_samples();
  const auto sizes = [](const std::string& size) {
    return std::vector<cli::Override>{{"packed_sequence.packed_sequence_size", size},
                                      {"dataset.seq_len", size}};
  };
  std::vector<cli::Override> neat = sizes("1"), kept = sizes("10");
  neat.push_back({"packed_sequence.packing_strategy", "neat"});
  kept.push_back({"packed_sequence.drop_long_samples", "false"});
  expect_all(
      {
          {{{"dataset.lengths", "null"}},
           "packed_sequence_size is 20, and dataset.lengths is not set: only samples of unequal length are "
           "packed"},
          {{{"dataset.seq_len", "16"}},
           "seq_len is 16 and packed_sequence.packed_sequence_size is 20: a row has one length"},
          {{{"packed_sequence", "null"}, {"dataset.seq_len", "10"}},
           "samples are longer than a row of seq_len 10; the longest has 19 inputs"},
          {{{"dataset.lengths", "FOLDER/none*"}}, "no file matches"},
          {sizes("1"),
           "No packs were produced: every sample was longer than packed_sequence_size=1 and was dropped "
           "(drop_long_samples=True), or the input dataset was empty."},
          {neat, "No samples remaining after filtering."},
          {kept, "Dataset sample is too long (19 > 10). Please increase `packed_sequence_size`."},
          {{{"packed_sequence.split_across_pack", "true"}},
           "packed_sequence.split_across_pack: Packing config field(s) split_across_pack are no longer "
           "supported and have no effect"},
          {{{"packed_sequence.prepacked", "true"}}, "packed_sequence.prepacked: heddle packs samples itself"},
          {{{"packed_sequence.packing_strategy", "greedy"}}, "packing_strategy"},
          {{{"packed_sequence.max_pack", "3"}}, "max_packs"},
          {{{"distributed", "{strategy: fsdp2, cp_size: 2, context: {method: ulysses}}"}},
           "method ulysses needs a number of heads, of queries and of keys, that cp_size divides: a rank has "
           "3, cp_size is 2"},
      },
      {{"dataset", "{file_pattern: FOLDER/docs.bin, lengths: FOLDER/docs.lengths, seq_len: 20}"},
       {"packed_sequence", "{packed_sequence_size: 20}"}});
}

// Whole sections, those of plugins and of named sets among them.
TEST_F(RefusedRuns, AreAcceptedWhenOverridesSetWholeSections) {
  cli::CheckCommand command;
  command.configs = {file("run.yaml", here(kRecipe))};
  command.overrides = {{"freeze_config", "{patterns: ['q_proj']}"},
                       {"tensorboard", "{dir: " + here("FOLDER/board") + "}"},
                       {"validation_dataset_small", "{file_pattern: a.bin, seq_len: 4}"}};
  command.elsewhere = true;
  EXPECT_EQ(run(command), 0) << err_ << error_;
}

}  // namespace
}  // namespace heddle::tests
