// `heddle check` reports every wrong key of a section, beside what the section's other keys lead to.
#include "trainer/checked.h"

namespace heddle {
namespace {

const std::string kSmallLlama = R"(model:
  config: {model_type: llama, vocab_size: 48, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2,
    num_attention_heads: 2, num_key_value_heads: 2, head_dim: 8, max_position_embeddings: 64}
)";
const std::string kNoData = "dataset: {file_pattern: data.bin, seq_len: 16}\n";

class SectionErrors : public tests::Checked {
 protected:
  // The lines "4 model.foo: unknown key 'foo'" of all errors.
  std::string errors_of(const std::string& yaml, int world_size = 1) {
    cli::CheckCommand command;
    command.configs = {file("run.yaml", yaml)};
    command.world_sizes = {world_size};
    run(command);
    const std::string printed = err_ + "\n" + error_, start = command.configs.front() + ":";
    std::string out;
    for (size_t at = printed.find("error["); at != printed.npos; at = printed.find("\nerror[", at + 1)) {
      const size_t begin = printed.find("] ", at) + 2, end = printed.find('\n', begin);
      const std::string line = printed.substr(begin, end - begin);
      out += (line.starts_with(start) ? line.substr(start.size()) : line) + "\n";
    }
    return out;
  }
};

TEST_F(SectionErrors, NameTheLineForTheStepScheduler) {
  EXPECT_EQ(
      errors_of("step_scheduler:\n  foo: 1\n  max_steps: -3\n  global_batch_size: 0\n  num_epochs: 0\n"
                "  preemption_signal: KILL\n  preemption_sender: me\n" +
                kSmallLlama + "dataset: {file_pattern: none.bin, seq_len: 16}\n"),
      "2 step_scheduler.foo: unknown key 'foo'\n"
      "3 step_scheduler.max_steps: max_steps must be greater than 0, got -3\n"
      "4 step_scheduler.global_batch_size: global_batch_size must be greater than 0, got 0\n"
      "5 step_scheduler.num_epochs: num_epochs must be greater than 0 or None if max_steps is provided, "
      "got 0\n"
      "6 step_scheduler.preemption_signal: 'KILL' is not a signal that a run can save and end on; there "
      "are: SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGQUIT, SIGALRM, SIGXCPU\n"
      "7 step_scheduler.preemption_sender: expected scheduler, person or null, got 'me'\n"
      "11 dataset.file_pattern: no file matches 'none.bin'\n");
}

TEST_F(SectionErrors, NameTheLineForTheModel) {
  EXPECT_EQ(errors_of("model:\n  foo: 1\n  dtype: float16\n  torch_dtype: int3\n"
                      "  config: {model_type: llama, num_key_value_heads: 3, num_attention_heads: 4}\n" +
                      kNoData),
            "2 model.foo: unknown key 'foo'\n"
            "3 model.dtype: parameters are stored in float32 or bfloat16, got 'float16'\n"
            "4 model.torch_dtype: unknown dtype 'int3'\n"
            "5 model.config: num_attention_heads 4 is not a multiple of num_key_value_heads 3\n"
            "6 dataset.file_pattern: no file matches 'data.bin'\n");
}

// A misspelt key is not missed a second time.
TEST_F(SectionErrors, NameAMisspeltKeyOnce) {
  EXPECT_EQ(
      errors_of("model:\n  confg: {model_type: llama}\ndataset: {file_pattern: none.bin, seq_lenn: 16}\n"),
      "2 model.confg: unknown key 'confg'\n3 dataset.seq_lenn: unknown key 'seq_lenn'\n"
      "3 dataset.file_pattern: no file matches 'none.bin'\n");
}

TEST_F(SectionErrors, NameTheLineForTheCheckpoint) {
  EXPECT_EQ(errors_of("checkpoint:\n  foo: 1\n  save_consolidated: maybe\n  checkpoint_dir: ''\n"
                      "  max_recent_checkpoints: 0\n  consolidation_timeout_minutes: -1\n"
                      "  best_metric_key: best\n  model_save_format: pickle\n" +
                      kSmallLlama + "dataset: {file_pattern: none.bin, seq_len: 16}\n"),
            "2 checkpoint.foo: unknown key 'foo'\n"
            "3 checkpoint.save_consolidated: expected false, final or every, got 'maybe'\n"
            "4 checkpoint.checkpoint_dir: checkpoint_dir is empty\n"
            "5 checkpoint.max_recent_checkpoints: checkpoint.max_recent_checkpoints must be unset or a "
            "positive integer\n"
            "6 checkpoint.consolidation_timeout_minutes: checkpoint.consolidation_timeout_minutes must be "
            "greater than 0\n"
            "7 checkpoint.best_metric_key: there is no validation set 'best'; there are none\n"
            "8 checkpoint.model_save_format: Unsupported model save format: pickle. Supported formats: "
            "['safetensors', 'torch_save']\n"
            "12 dataset.file_pattern: no file matches 'none.bin'\n");
}

TEST_F(SectionErrors, NameTheLineForTheOptimizer) {
  const std::string said = errors_of(
      "optimizer:\n  lr: -1\n  betas: [2, 3]\n  weight_decay: -1\n  foo: 1\n"
      "  param_group_overrides:\n  - {pattern: '(', lr_mult: -1}\n  - {lr_mult: 2}\n"
      "clip_grad_norm:\n  max_norm: -1\n  norm_type: 0\n" +
      kSmallLlama + "dataset: {file_pattern: none.bin, seq_len: 16}\n");
  for (const char* place :
       {"2 optimizer.lr: ", "3 optimizer.betas",
        "4 optimizer.weight_decay: ", "5 optimizer.foo: unknown key 'foo'",
        "7 optimizer.param_group_overrides[0]", "8 optimizer.param_group_overrides[1]",
        "10 clip_grad_norm.max_norm: ", "11 clip_grad_norm.norm_type: ", "15 dataset.file_pattern: "})
    EXPECT_THAT("\n" + said, testing::HasSubstr("\n" + std::string(place)));
}

TEST_F(SectionErrors, NameTheLineForTheData) {
  EXPECT_EQ(errors_of("dataset:\n  dtype: uint17\n  file_pattern: [none.bin, nothing.bin]\n  seq_len: 0\n"
                      "  reset_attention_at: -1\n  foo: 1\n  lengths: none.txt\n"
                      "validation_dataset:\n  file_pattern: []\n  lengths: []\n  seq_len: 4\n" +
                      kSmallLlama),
            "2 dataset.dtype: tokens are integers of 8 to 64 bits, got 'uint17'\n"
            "3 dataset.file_pattern: no file matches 'none.bin'\n"
            "3 dataset.file_pattern: no file matches 'nothing.bin'\n"
            "4 dataset.seq_len: seq_len must be greater than 0, got 0\n"
            "5 dataset.reset_attention_at: the token that ends a document is at least 0, got -1\n"
            "6 dataset.foo: unknown key 'foo'\n"
            "7 dataset.lengths: no file matches 'none.txt'\n"
            "9 validation_dataset.file_pattern: the list is empty\n"
            "10 validation_dataset.lengths: the list is empty\n");
}

TEST_F(SectionErrors, NameTheLineForTheSchedule) {
  const std::string said = errors_of(
      "lr_scheduler:\n  lr_decay_style: cosin\n  wd_incr_style: cosin\n  lr_warmup_steps: 0.5\n"
      "  lr_decay_steps: 0\n  foo: 1\n" +
      kSmallLlama + "dataset: {file_pattern: none.bin, seq_len: 16}\n");
  for (const char* place :
       {"2 lr_scheduler.lr_decay_style: unknown style", "3 lr_scheduler.wd_incr_style: unknown style",
        "4 lr_scheduler.lr_warmup_steps: ", "5 lr_scheduler.lr_decay_steps: ", "6 lr_scheduler.foo: ",
        "10 dataset.file_pattern: "})
    EXPECT_THAT("\n" + said, testing::HasSubstr("\n" + std::string(place)));
}

TEST_F(SectionErrors, NameTheLineForTheStrategy) {
  const std::string said = errors_of(
      "distributed:\n  strategy: fsdp2\n  foo: 1\n  cp_size: x\n  reshard_after_forward: [1]\n"
      "  activation_checkpointing: some\n" +
      kSmallLlama + "dataset: {file_pattern: none.bin, seq_len: 16}\n");
  for (const char* place : {"3 distributed.foo: Unknown options for strategy 'fsdp2': ['foo']",
                            "4 distributed.cp_size: ", "5 distributed.reshard_after_forward: ",
                            "6 distributed.activation_checkpointing: ", "10 dataset.file_pattern: "})
    EXPECT_THAT("\n" + said, testing::HasSubstr("\n" + std::string(place)));
}

// What a parallelizer refuses of the model is at its key.
TEST_F(SectionErrors, NameTheLineForParallelizers) {
  const std::string data = "dataset: {file_pattern: " + file("data.bin", std::string(800, '\1')) +
                           ", dtype: uint16, seq_len: 16}\n";
  EXPECT_THAT(
      errors_of("step_scheduler: {global_batch_size: 4}\ndistributed:\n  strategy: fsdp2\n  tp_size: 4\n" +
                    kSmallLlama + data,
                4),
      testing::StartsWith("4 distributed.tp_size: num_key_value_heads (2) must be divisible by TP size (4)"));
}

}  // namespace
}  // namespace heddle
