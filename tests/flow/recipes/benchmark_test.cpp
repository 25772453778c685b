// `heddle train` with AutoModel's benchmark recipe: times steps, and does nothing else.
#include <gmock/gmock.h>

#include <filesystem>

#include "flow/stops/started.h"
#include "flow/training_files.h"

namespace flow {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kBenchmark = R"(recipe: BenchmarkingRecipeForNextTokenPrediction
benchmark: {warmup_steps: 2, peak_tflops: 2, nsys_start: -1, nsys_end: -1, nsys_ranks: [], num_nodes: 1,
            json_output_path: DIRECTORY/out/figures.json}
step_scheduler: {global_batch_size: 8, local_batch_size: 2, max_steps: 5, num_epochs: 1, val_every_steps: 10}
model:
  config: {model_type: llama, vocab_size: 256, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2,
           num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64}
  dtype: float32
dataset: {_target_: mock_iterable_dataset.MockIterableDataset, vocab_size: 1000, seq_len: 64,
          num_samples: 20, batch_size: 1}
validation_dataset: {_target_: mock_iterable_dataset.MockIterableDataset, seq_len: 64, num_samples: 20}
dataloader: {_target_: torch.utils.data.DataLoader, batch_size: null}
optimizer: {lr: 0.003}
lr_scheduler: {lr_decay_style: cosine}
checkpoint: {enabled: true, checkpoint_dir: DIRECTORY/run}
distributed: {strategy: fsdp2, mp_policy: {param_dtype: float32, reduce_dtype: float32}}
)";

struct BenchmarkFiles : TrainingFiles {
  BenchmarkFiles() {
    std::string text = kBenchmark;
    const std::string word = "DIRECTORY";
    for (size_t at = text.find(word); at != text.npos; at = text.find(word))
      text.replace(at, word.size(), fs::path(path("x")).parent_path().string());
    write("benchmark.yaml", text);
  }
  Words train(const Words& more = {}) const { return plus({"train", path("benchmark.yaml")}, more); }
};

TEST(Benchmark, TimesStepsOnAllRanksAndWritesAutoModelsKeys) {
  const BenchmarkFiles files;
  const Outcome outcome = heddle(files.train({"--nproc-per-node", "2"}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const std::string json = read_text(files.path("out/figures.json"));
  size_t before = 0;
  for (const char* key :
       {"\"total_steps\": 5,", "\"warmup_steps\": 2,", "\"training_steps\": 3,", "\"setup_time_seconds\": ",
        "\"warmup_time_seconds\": ", "\"training_time_seconds\": ", "\"avg_iter_time_seconds\": ",
        "\"avg_mfu_percent\": ", "\"tflops_per_gpu\": 0.000301989888,", "\"peak_tflops\": 2.0,",
        "\"world_size\": 2,", "\"global_batch_size\": 8,", "\"local_batch_size\": 2,", "\"seq_len\": 64"}) {
    const size_t at = json.find(key);
    ASSERT_NE(at, json.npos) << key << json;
    EXPECT_GE(at, before) << key;
    before = at;
  }
  // The 20 samples are enough for two steps. The rest of an epoch is dropped, so all steps have the same
  // size.
  EXPECT_THAT(outcome.out, ContainsRegex("iteration 5 of 5 \\| num_label_tokens=504 \\| .*loss=[0-9.]+\n"
                                         "  Max iter time: [0-9.]+ seconds\n  MFU: [0-9.]+%\n"
                                         "  milliseconds \\(fastest rank, slowest rank\\): iteration "
                                         "\\([0-9.]+, [0-9.]+\\), optimizer \\(.*\\), "
                                         "forward_backward_0 \\(.*\\), forward_backward_1 \\(.*\\)\n"));
  EXPECT_THAT(outcome.out, HasSubstr("iteration 2 of 5 (warmup) |"));
  EXPECT_THAT(outcome.out,
              ContainsRegex("Average iteration time: [0-9.]+ seconds \\(excluding first 2 warmup "
                            "iterations\\)\nAverage MFU: "));
  EXPECT_FALSE(fs::exists(files.path("run")));  // no validation and no checkpoint
  const Outcome again = heddle(files.train({"--benchmark.warmup_steps", "9"}));
  EXPECT_EQ(again.status, 0) << again.error;  // its own file is replaced
  EXPECT_THAT(again.out, HasSubstr(" (all 5 iterations)\n"));
}

TEST(Benchmark, RefusesToReplaceAFileOfAnotherKind) {
  const BenchmarkFiles files;
  const std::string recipe = read_text(files.path("benchmark.yaml"));
  for (const char* other : {"benchmark.yaml", "text.txt"}) {
    const Outcome outcome = heddle(files.train({"--benchmark.json_output_path", files.path(other)}));
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.error, HasSubstr("benchmark.json_output_path: " + files.path(other) +
                                         " exists and contains no figures of a benchmark"));
  }
  EXPECT_EQ(read_text(files.path("benchmark.yaml")), recipe);
  const Outcome pair = heddle(files.train(
      {"--trace", files.path("one.json"), "--benchmark.json_output_path", files.path("one.json")}));
  EXPECT_EQ(pair.status, 2);
  EXPECT_THAT(pair.error, HasSubstr("is used for two outputs: "));
  const Outcome metrics = heddle(files.train({"--metrics", files.path("m.jsonl")}));
  EXPECT_EQ(metrics.status, 2);
  EXPECT_EQ(metrics.error,
            "error[usage] --metrics: a benchmark writes no metrics\n"
            "  hint: remove it; benchmark.json_output_path sets the file of the results\n");
}

// Like AutoModel's loader on one rank: samples that do not fill a microbatch are dropped on every topology,
// and a last step of fewer microbatches runs.
TEST(DropLast, DropsAnIncompleteMicrobatch) {
  for (const char* ranks : {"1", "2"})
    for (const bool drops : {true, false}) {
      const BenchmarkFiles files;
      const std::string set = "{_target_: mock.MockIterableDataset, seq_len: 64, num_samples: ";
      const std::string loader = drops ? "{drop_last: true}" : "{}";
      const Outcome outcome = heddle(
          files.train({"--nproc-per-node", ranks, "--recipe", "TrainFinetuneRecipeForNextTokenPrediction",
                       "--dataset", set + "21}", "--validation_dataset", set + "5}", "--dataloader", loader,
                       "--validation_dataloader", loader, "--checkpoint.save_consolidated", "false"}));
      ASSERT_EQ(outcome.status, 0) << outcome.error;
      EXPECT_THAT(column(files.path("run/training.jsonl"), "num_label_tokens"),
                  ::testing::ElementsAre(8 * 63, 8 * 63, (drops ? 4 : 5) * 63));
      EXPECT_THAT(column(files.path("run/validation.jsonl"), "num_label_tokens"),
                  ::testing::ElementsAre((drops ? 4 : 5) * 63));
    }
  const BenchmarkFiles files;
  const Outcome none = heddle(files.train(
      {"--recipe", "TrainFinetuneRecipeForNextTokenPrediction", "--validation_dataset.num_samples", "1",
       "--validation_dataset.seq_len", "64", "--validation_dataloader", "{drop_last: true}"}));
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.error, HasSubstr("validation_dataloader.drop_last leaves none of its 1 samples"));
}

TEST(Benchmark, IsIgnoredInAFinetuneRecipe) {
  const TrainingFiles files;
  const Outcome outcome =
      heddle({"check", files.path("run.yaml"), "--verbose", "--benchmark.warmup_steps", "3"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_THAT(outcome.out, HasSubstr("skipped: benchmark: only the benchmark recipe reads it\n"));
}

}  // namespace
}  // namespace flow
