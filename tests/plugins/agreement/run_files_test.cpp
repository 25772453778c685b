// Runs whose ranks read different files at the same paths are refused before the first step.
#include <gmock/gmock.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "heddle/transport/threads.h"
#include "lib/run/loop/run.h"
#include "lib/run/preflight/preflight.h"
#include "lib/run/spec/stop_request.h"
#include "plugins/agreement/named_hosts.h"
#include "plugins/distill/distill_runs.h"
#include "plugins/whole_runs.h"

namespace heddle::tests {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kSameFilesHint =
    "\n  hint: Copy the same files to each host, or keep them on a disk that all hosts share.";
constexpr const char* kDifferent = "error[mesh] mesh: the ranks read different files: ";

// Returns the errors of two ranks on two hosts that read the files of `yaml`. `change` modifies them for the
// second rank.
std::vector<std::string> errors_on_two_hosts(const std::string& yaml, const std::function<void()>& change) {
  const Node configuration = config::read_text(yaml, "run.yaml");
  PluginRegistry plugins = open_plugins(configuration, Log());
  const auto prepare = [&] {
    return prepare_run(read_recipe(configuration, RecipeErrors::kept), plugins, 2);
  };
  const RunSpec first = prepare();
  change();
  const RunSpec second = prepare();
  std::vector<std::string> errors(2);
  ::testing::internal::CaptureStdout();
  ThreadWorld::run(2, [&](Rendezvous& inner) {
    NamedHosts rendezvous(inner, 1);
    PluginRegistry own = open_plugins(configuration, Log());
    StopRequest request;
    try {
      run_rank(inner.rank() == 0 ? first : second, own, rendezvous, request);
    } catch (const Error& error) {
      errors[static_cast<size_t>(inner.rank())] = error.what();
    }
  });
  ::testing::internal::GetCapturedStdout();
  return errors;
}

void replace_directory(const fs::path& from, const fs::path& to) {
  fs::remove_all(to);
  fs::copy(from, to, fs::copy_options::recursive);
}

void change_last_bytes(const fs::path& file) {
  std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(-4, std::ios::end).write("\0\0\0\1", 4);
}

// Two saved models. `model` is a copy of the first one.
class RunFiles : public ::testing::Test {
 protected:
  RunFiles() {
    runs.train({"first", 1, "{strategy: single}"}, "first", 1);
    runs.train({"second", 1, "{strategy: single}"}, "second", 2);
    replace_directory(runs / "first/epoch_0_step_0", runs / "model");
  }

  std::string yaml(const std::string& more = "", const std::string& checkpoint = "enabled: false") const {
    return "model: {pretrained_model_name_or_path: " + (runs / "model").string() +
           ", dtype: float32}\ndataset: {file_pattern: " + (runs / "train.bin").string() +
           ", seq_len: 7}\nvalidation_dataset: {file_pattern: " + (runs / "validation.bin").string() +
           ", seq_len: 7}\nstep_scheduler: {global_batch_size: 4, local_batch_size: 2, max_steps: 2, "
           "val_every_steps: 2}\ndistributed: {strategy: ddp}\ncheckpoint: {" +
           checkpoint + "}\n" + more;
  }

  void use_second_model() const { replace_directory(runs / "second/epoch_0_step_1", runs / "model"); }

  WholeRuns runs;
};

TEST_F(RunFiles, AreRefusedIfOneHostHasOtherWeights) {
  fs::copy(runs / "train.bin", runs / "validation.bin");
  for (const std::string more : {"", "peft: {dim: 2}\n"}) {
    replace_directory(runs / "first/epoch_0_step_0", runs / "model");
    const std::vector<std::string> errors = errors_on_two_hosts(yaml(more), [&] { use_second_model(); });
    EXPECT_EQ(errors[0], errors[1]);
    EXPECT_THAT(
        errors[0],
        MatchesRegex("error\\[mesh\\] mesh: the ranks read different files: weights of the model "
                     "\\(checksum [0-9a-f]{16} on rank 0 on host0; checksum [0-9a-f]{16} on rank 1 on "
                     "host1\\)\n  hint: Copy the same files to each host, or keep them on a disk that all "
                     "hosts share\\."));
  }
}

TEST_F(RunFiles, AreRefusedIfOneHostHasOtherValidationData) {
  fs::copy(runs / "train.bin", runs / "validation.bin");
  const std::vector<std::string> errors = errors_on_two_hosts(yaml(), [&] {
    std::vector<uint16_t> tokens(30 * 7 + 1, 3);
    write_token_file(runs / "validation.bin", {20240520, 1, static_cast<int32_t>(tokens.size())}, tokens);
  });
  EXPECT_THAT(errors[1],
              AllOf(StartsWith(std::string(kDifferent) + "samples of validation_dataset ("),
                    HasSubstr("30 rows, "), HasSubstr(" on rank 1 on host1)"), HasSubstr(kSameFilesHint)));
}

TEST_F(RunFiles, AreRefusedIfOneHostLacksTheCheckpoint) {
  fs::copy(runs / "train.bin", runs / "validation.bin");
  const std::string recipe = yaml("", "save_consolidated: false, checkpoint_dir: " + (runs / "run").string());
  train_recipe(recipe, 2);
  const std::string longer = recipe + "lr_scheduler: {lr_decay_steps: 9}\n";
  const std::vector<std::string> errors =
      errors_on_two_hosts(longer, [&] { fs::rename(runs / "run", runs / "elsewhere"); });
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_THAT(
      errors[0],
      AllOf(StartsWith(std::string(kDifferent) + "checkpoint to resume from (epoch_0_step_1, checksum "),
            HasSubstr(" on rank 0 on host0; not found on rank 1 on host1)"), HasSubstr(kSameFilesHint)));
}

TEST_F(RunFiles, AreRefusedIfOneHostHasAnotherCheckpointOfTheSameName) {
  fs::copy(runs / "train.bin", runs / "validation.bin");
  const auto recipe = [&](const std::string& run) {
    return yaml("", "save_consolidated: false, checkpoint_dir: " + (runs / run).string());
  };
  train_recipe(recipe("run"), 2);
  train_recipe("optimizer: {lr: 0.5}\n" + recipe("other"), 2);
  const std::vector<std::string> errors = errors_on_two_hosts(recipe("run"), [&] {
    for (const char* part : {"model", "optim", "step_scheduler.json"})
      fs::remove_all(runs / "run/epoch_0_step_1" / part);
    for (const char* part : {"model", "optim"})
      fs::copy(runs / "other/epoch_0_step_1" / part, runs / "run/epoch_0_step_1" / part,
               fs::copy_options::recursive);
    fs::copy(runs / "other/epoch_0_step_1/step_scheduler.json",
             runs / "run/epoch_0_step_1/step_scheduler.json");
  });
  EXPECT_THAT(errors[1], AllOf(StartsWith(std::string(kDifferent) +
                                          "checkpoint to resume from (epoch_0_step_1, checksum "),
                               HasSubstr(" on rank 0 on host0; epoch_0_step_1, checksum "),
                               HasSubstr(" on rank 1 on host1)"), Not(HasSubstr("not found"))));
}

TEST_F(RunFiles, AreReadOncePerStartAndNotComparedOnOneRank) {
  fs::copy(runs / "train.bin", runs / "validation.bin");
  const Node configuration = config::read_text(yaml(), "run.yaml");
  PluginRegistry plugins = open_plugins(configuration, Log());
  const auto files = [&](int ranks) {
    return prepare_run(read_recipe(configuration, RecipeErrors::kept), plugins, ranks).files;
  };
  EXPECT_TRUE(files(1).empty());
  EXPECT_EQ(files(2), files(2));
  EXPECT_TRUE(files(2).contains("weights of the model"));
}

TEST_F(RunFiles, AreRefusedIfOneHostHasAnotherTeacherTokenizerOrTemplate) {
  fs::copy(runs / "train.bin", runs / "validation.bin");
  const auto make = [&] {
    replace_directory(kGolden / "llama", runs / "model");
    replace_directory(kGolden / "llama_tied", runs / "teacher");
    std::ofstream(runs / "model/tokenizer.json") << "{}";
    std::ofstream(runs / "model/chat_template.jinja") << "{{ messages }}";
  };
  const std::string teacher =
      "recipe: KnowledgeDistillationRecipeForNextTokenPrediction\nteacher_model: "
      "{pretrained_model_name_or_path: " +
      (runs / "teacher").string() + "}\n";
  const std::map<std::string, std::function<void()>> changes = {
      {"weights of teacher_model", [&] { change_last_bytes(runs / "teacher/model.safetensors"); }},
      {"weights of the model", [&] { change_last_bytes(runs / "model/model.safetensors"); }},
      {"tokenizer.json of the model", [&] { std::ofstream(runs / "model/tokenizer.json") << "{ }"; }},
      {"chat_template.jinja of the model",
       [&] { std::ofstream(runs / "model/chat_template.jinja") << "{{ messages[0] }}"; }}};
  for (const auto& [file, change] : changes) {
    make();
    for (const std::string& error : errors_on_two_hosts(yaml(teacher), change))
      EXPECT_THAT(error, AllOf(HasSubstr(file + " (checksum "), HasSubstr(" on rank 1 on host1)"),
                               HasSubstr(kSameFilesHint)));
  }
}

TEST_F(RunFiles, AreRefusedIfOneHostHasAnotherAdapterOrBase) {
  fs::copy(runs / "train.bin", runs / "validation.bin");
  runs.pretrained = "model";
  runs.train({"adapter", 1, "{strategy: single}", "peft: {dim: 2}\n"}, "adapted", 4);
  fs::create_directory(runs / "adapter");
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
    fs::copy(runs / "adapted/epoch_0_step_3/model" / file, runs / "adapter" / file);
  std::string recipe = yaml();
  const std::string model = (runs / "model").string();
  recipe.replace(recipe.find(model), model.size(), (runs / "adapter").string());
  EXPECT_THAT(errors_on_two_hosts(recipe, [&] { use_second_model(); })[1],
              StartsWith(std::string(kDifferent) + "weights of the model (checksum "));
  replace_directory(runs / "first/epoch_0_step_0", runs / "model");
  EXPECT_THAT(
      errors_on_two_hosts(recipe, [&] { change_last_bytes(runs / "adapter/adapter_model.safetensors"); })[1],
      StartsWith(std::string(kDifferent) + "adapter 1 of the model (checksum "));
}

}  // namespace
}  // namespace heddle::tests
