// `heddle check` says of a run what `heddle train` says, before it starts.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "flow/stops/started.h"
#include "model_files.h"
#include "training_files.h"

namespace flow {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

// A recipe that is wrong in one thing: `old` in run.yaml becomes `changed`, or `changed` is added at its end.
struct Broken {
  std::string old, changed;
  std::string what;  // a part of the error's sentence
  std::string second_old = "", second_changed = "";
};

const std::string kPipeline = "strategy: fsdp2\n  pp_size: 2\n  pipeline: ";

const std::vector<Broken> kData = {
    {"train.bin", "none.bin", "no file matches '"},
    {"train.bin", "fifo", "is a FIFO; a regular file is expected"},
    {"train.bin", "text.txt", "not a token file"},
    {"train.bin", "cut.bin", "the file is cut"},
    {"seq_len: 16", "seq_len: 64", "seq_len 64 is longer than the model's 32 positions"},
    {"  seq_len: 16\n", "", "seq_len is missing"},
    {"", "validation_dataset: {file_pattern: none/v.bin, seq_len: 4}", "no file matches 'none/v.bin'"},
    {"dataset:\n", "validation_dataset:\n", "the section dataset is missing"},
};

const std::vector<Broken> kModels = {
    {"model_type: llama", "model_type: gpt9", "model_type 'gpt9' is not built"},
    {"hidden_size: 24", "hidden_size: 25", "hidden_size 25 is not a multiple of num_attention_heads 3"},
    {"dtype: float32\n", "dtype: fp32\n", "unknown dtype 'fp32'"},
    {"model:\n", "model: {pretrained_model_name_or_path: nowhere/model}\nseed2:\n",
     "'nowhere/model' is not there"},
    {"  dtype: float32\n", "  pretrained_model_name_or_path: a/b\n", "is not there"},
    {"strategy: fsdp2", "strategy: fsdp2\n  tp_size: 2", "num_key_value_heads"},
    {"strategy: fsdp2", kPipeline + "{}", "does not support tie_word_embeddings=True", "model_type: llama",
     "model_type: llama, tie_word_embeddings: true"},
};

const std::vector<Broken> kSteps = {
    {"global_batch_size: 8", "global_batch_size: 6", "global_batch_size (6) must be divisible by"},
    {"local_batch_size: 2", "local_batch_size: 4611686018427387904", "must be at most 2147483647"},
    {"max_steps: 12", "max_steps: 1e3", "expected an integer, got 1000.0"},
    {"", "lr_scheduler: {lr_warmup_steps: 20}", "lr_warmup_steps (20) must be below lr_decay_steps (12)"},
    {"lr: 0.003", "lr: fast", "expected a number, got 'fast'"},
    {"lr: 0.003", "_target_: torch.optim.SGD", "there is no optimizer 'SGD'"},
    {"", "optimiser: {}", "unknown key 'optimiser'"},
    {"", "seed: 8", "the key 'seed' is repeated"},
    {"", "model: [1", "YAML syntax"},
    {"", "dist_env: {timeout_minutes: 1e15}", "timeout_minutes must be from 0.001 to 525600"},
};

const std::vector<Broken> kDistributed = {
    {"strategy: fsdp2", "strategy: fsdp9", "Unknown strategy: fsdp9"},
    {"strategy: fsdp2", "strategy: fsdp2\n  tp_size: 3", "world_size (2) must be divisible by"},
    {"strategy: fsdp2", "strategy: fsdp2\n  tp_sise: 2", "Unknown options for strategy 'fsdp2': ['tp_sise']"},
    {"strategy: fsdp2", "strategy: fsdp2\n  ep_size: 2", "ep_size is 2, and the model has no experts"},
    {"strategy: fsdp2", "_target_: my_trainer.Manager", "unknown component 'my_trainer.Manager'"},
    {"strategy: fsdp2", "strategy: fsdp2\n  pp_size: 2", "no `distributed.pipeline` block"},
    {"strategy: fsdp2", kPipeline + "{pp_microbatch_size: 3}", "local_batch_size must be divisible by"},
    {"strategy: fsdp2", kPipeline + "{pp_schedule: 9f9b}", "Unknown schedule '9f9b'"},
    {"strategy: fsdp2", kPipeline + "{loss_fn: no.such.loss}", "unknown component 'no.such.loss'"},
    {"strategy: fsdp2", kPipeline + "{layers_per_stage: 3}", "must be divisible by pipeline parallel size"},
    {"strategy: fsdp2\n  mp_policy: {param_dtype: float32, reduce_dtype: float32}",
     "strategy: megatron_fsdp\n  megatron_fsdp_unit_modules: [no.such.Layer]", "no.such.Layer"},
    {"", "plugins: [./none.so]", "there is no such plugin file"},
    {"", "plugins: [./fifo.so]", "there is no such plugin file"},
    {"", "checkpoint: {model_repo_id: a/b}", "models are not downloaded"},
    {"", "checkpoint: {restore_from: gone}", "neither"},
    {"", "checkpoint: {best_metric_key: other}", "there is no validation set 'other'"},
    {"", "dist_env: {backend: mpi}", "expected one of gloo"},
};

class CheckedRun : public ::testing::Test {
 protected:
  CheckedRun() {
    files_.write("cut.bin", read_text(files_.path("train.bin")).substr(0, 3001));
    ::mkfifo(files_.path("fifo").c_str(), 0600);
    ::mkfifo(files_.path("fifo.so").c_str(), 0600);
  }

  std::string write(const Broken& broken, size_t number) const {
    std::string yaml = read_text(files_.path("run.yaml"));
    const auto change = [&](const std::string& old, const std::string& changed) {
      const size_t at = old.empty() ? yaml.size() : yaml.find(old);
      ASSERT_NE(at, std::string::npos) << old;
      yaml.replace(at, old.size(), changed + (old.empty() ? "\n" : ""));
    };
    change(broken.old, broken.changed);
    if (!broken.second_old.empty()) change(broken.second_old, broken.second_changed);
    const std::string name = "broken" + std::to_string(number) + ".yaml";
    files_.write(name, yaml);
    return files_.path(name);
  }

  // Both commands on two ranks: one status, one error.
  void expect_alike(const std::vector<Broken>& recipes) const {
    Words check = {"check"};
    for (size_t i = 0; i < recipes.size(); ++i) check.push_back(write(recipes[i], i));
    const std::vector<std::string> configs(check.begin() + 1, check.end());
    const Outcome checked = heddle(plus(check, {"--world-size", "2", "--json"}));
    EXPECT_EQ(checked.status, 2) << checked.error;
    std::istringstream lines(checked.out);
    for (size_t i = 0; i < recipes.size(); ++i) {
      SCOPED_TRACE(recipes[i].changed);
      std::string line;
      ASSERT_TRUE(std::getline(lines, line)) << checked.out << checked.error;
      const json verdict = json::parse(line);
      const Outcome trained = heddle({"train", configs[i], "--nproc-per-node", "2", "--json"});
      EXPECT_EQ(trained.status, 2) << trained.error;
      ASSERT_TRUE(verdict.contains("error")) << line;
      EXPECT_THAT(verdict["error"]["what"].get<std::string>(), HasSubstr(recipes[i].what));
      EXPECT_EQ(verdict["error"], json::parse(trained.out)["error"]) << trained.error;
    }
  }

  const TrainingFiles files_;
};

TEST_F(CheckedRun, HasTrainsVerdictOnData) {
  expect_alike(kData);
}

TEST_F(CheckedRun, HasTrainsVerdictOnModels) {
  expect_alike(kModels);
}

TEST_F(CheckedRun, HasTrainsVerdictOnStepsAndOptimizers) {
  expect_alike(kSteps);
}

TEST_F(CheckedRun, HasTrainsVerdictOnDistributedRuns) {
  expect_alike(kDistributed);
}

TEST_F(CheckedRun, HasTrainsVerdictOnWeightsOfAnotherModel) {
  fs::copy(kGolden + "llama", files_.path("model"), fs::copy_options::recursive);
  std::string config = read_text(files_.path("model/config.json"));
  config.replace(config.find("\"intermediate_size\": "), 21, "\"intermediate_size\": 1");
  files_.write("model/config.json", config);
  const Words model = {"--model", "{pretrained_model_name_or_path: " + files_.path("model") + "}"};
  const Outcome checked = heddle(plus({"check", files_.path("run.yaml")}, model));
  const Outcome trained = heddle(files_.train("run", model));
  EXPECT_EQ(checked.status, 2);
  EXPECT_EQ(trained.status, 2);
  EXPECT_THAT(checked.error, HasSubstr("has the shape"));
  EXPECT_EQ(checked.error, trained.error);
}

TEST_F(CheckedRun, SaysWarningsOnStandardErrorAndInTheJson) {
  const Words half = {"check", files_.path("run.yaml"), "--distributed.pipeline", "{pp_schedule: 1f1b}"};
  const Outcome text = heddle(half), outcome = heddle(plus(half, {"--json"}));
  EXPECT_EQ(text.status, 0) << text.error;
  EXPECT_THAT(text.out, Not(HasSubstr("warning")));
  const json warnings = json::parse(outcome.out)["warnings"];
  ASSERT_EQ(warnings.size(), 1u) << outcome.out;
  EXPECT_EQ(text.error, "warning: " + warnings[0].get<std::string>() + "\n");
}

TEST_F(CheckedRun, CountsStepsAndTheBytesOfARank) {
  const Outcome text = heddle({"check", files_.path("run.yaml"), "--world-size", "2"});
  EXPECT_EQ(text.status, 0) << text.error;
  EXPECT_THAT(text.out, HasSubstr("memory of a rank: parameters "));
  EXPECT_THAT(text.out, HasSubstr("steps: 12, "));
  const Outcome outcome = heddle({"check", files_.path("run.yaml"), "--world-size", "1,2", "--json"});
  std::istringstream lines(outcome.out);
  std::string one, two;
  ASSERT_TRUE(std::getline(lines, one) && std::getline(lines, two)) << outcome.error;
  const json alone = json::parse(one), shared = json::parse(two);
  // Embedding and head, two layers of attention, MLP and two norms, and the last norm.
  const int64_t parameters = 2 * 256 * 24 + 2 * (2 * 24 * 24 + 2 * 8 * 24 + 3 * 24 * 40 + 2 * 24) + 24;
  EXPECT_EQ(alone["parameters"], parameters);
  EXPECT_NEAR(alone["bytes_per_rank"]["parameters"], 4 * parameters, 200);  // joined weights are padded
  EXPECT_EQ(alone["bytes_per_rank"]["gradients"], 4 * parameters);
  EXPECT_EQ(alone["bytes_per_rank"]["optimizer"], 8 * parameters);
  EXPECT_EQ(shared["parameters"], parameters);
  EXPECT_NEAR(shared["bytes_per_rank"]["parameters"], 2 * parameters, 200);
  EXPECT_EQ(shared["steps"], 12);
}

// Of Muon one box for each matrix, where AdamW keeps two.
TEST_F(CheckedRun, CountsTheStateOfTheOptimizerThatIsNamed) {
  const Outcome outcome = heddle({"check", files_.path("run.yaml"), "--world-size", "1", "--json",
                                  "--optimizer", "{_target_: dion.Muon, lr: 0.01}"});
  const int64_t scalars = 2 * 256 * 24 + 5 * 24, matrices = 2 * (2 * 24 * 24 + 2 * 8 * 24 + 3 * 24 * 40);
  EXPECT_EQ(json::parse(outcome.out)["bytes_per_rank"]["optimizer"], 4 * (2 * scalars + matrices))
      << outcome.error;
  const Outcome early =
      heddle({"check", files_.path("run.yaml"), "--world-size", "2", "--optimizer", "{_target_: dion.Muon}",
              "--distributed", "{strategy: ddp, pp_size: 2, pipeline: {pp_post_validation: true}}"});
  EXPECT_EQ(early.status, 2);
  EXPECT_THAT(early.error,
              HasSubstr("distributed.pipeline.pp_post_validation: post-validation takes updates back, "
                        "and the optimizer 'Muon' cannot"));
}

TEST_F(CheckedRun, ElsewhereWarnsOfWhatThisMachineLacks) {
  const Words missing = {"check",
                         files_.path("run.yaml"),
                         "--dataset.file_pattern",
                         "none/*.bin",
                         "--model",
                         "{pretrained_model_name_or_path: nowhere/model}",
                         "--dist_env.backend",
                         "nccl"};
  EXPECT_EQ(heddle(missing).status, 2);
  const Outcome elsewhere = heddle(plus(missing, {"--elsewhere", "--json"}));
  EXPECT_EQ(elsewhere.status, 0) << elsewhere.error;
  const json verdict = json::parse(elsewhere.out);
  EXPECT_THAT(
      verdict["warnings"].dump(),
      ::testing::AllOf(HasSubstr("on this machine nowhere/model is not there: the model is not checked"),
                       HasSubstr("on this machine no file matches 'none/*.bin': the data is not checked"),
                       HasSubstr("'nccl'")));
  EXPECT_TRUE(verdict["steps"].is_null());
  const Outcome twice =
      heddle(plus(missing, {"--validation_dataset", "{file_pattern: 'none/*.bin', seq_len: 4}", "--elsewhere",
                            "--json"}));
  EXPECT_EQ(json::parse(twice.out)["warnings"], verdict["warnings"]) << "each is said once";
  const Outcome wrong = heddle(plus(missing, {"--elsewhere", "--step_scheduler.global_batch_size", "3"}));
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.error, HasSubstr("global_batch_size (3) must be divisible by"));
}

TEST_F(CheckedRun, WritesNothing) {
  ASSERT_EQ(
      heddle({"check", files_.path("run.yaml"), "--checkpoint.checkpoint_dir", files_.path("out")}).status,
      0);
  EXPECT_FALSE(fs::exists(files_.path("out")));
}

}  // namespace
}  // namespace flow
