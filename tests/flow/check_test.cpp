// `heddle check` reports what `heddle train` reports before a run starts.
#include <gmock/gmock.h>

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

// Overrides that make the recipe invalid, each in another part of the check. All refusals: tests/messages.
const Words kWrong[] = {{"--optimiser", "{}"},
                        {"--step_scheduler.global_batch_size", "6"},
                        {"--optimizer._target_", "torch.optim.SGD"},
                        {"--dataset.file_pattern", "none.bin"},
                        {"--dataset.seq_len", "64"},
                        {"--model.config.model_type", "gpt9"},
                        {"--distributed.tp_size", "3"},
                        {"--distributed.ep_size", "2"},
                        {"--plugins", "[./none.so]"},
                        {"--checkpoint.restore_from", "gone"}};

class CheckedRun : public ::testing::Test {
 protected:
  const TrainingFiles files_;
};

// On two ranks, check and train have the same status and error.
TEST_F(CheckedRun, AgreesWithTrain) {
  for (const Words& wrong : kWrong) {
    SCOPED_TRACE(wrong.front());
    const Outcome checked =
        heddle(plus({"check", files_.path("run.yaml"), "--world-size", "2", "--json"}, wrong));
    const Outcome trained =
        heddle(plus({"train", files_.path("run.yaml"), "--nproc-per-node", "2", "--json"}, wrong));
    EXPECT_EQ(checked.status, 2) << checked.error;
    EXPECT_EQ(trained.status, 2) << trained.error;
    const json verdict = json::parse(checked.out);
    ASSERT_TRUE(verdict.contains("error")) << checked.out;
    EXPECT_EQ(verdict["error"], json::parse(trained.out)["error"]) << trained.error;
  }
}

TEST_F(CheckedRun, AgreesWithTrainOnWeightsOfAnotherModel) {
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

TEST_F(CheckedRun, PrintsWarningsOnStandardErrorAndInTheJson) {
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
  EXPECT_THAT(text.out, HasSubstr("memory per rank: parameters "));
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

// Muon has one box per matrix, where AdamW has two.
TEST_F(CheckedRun, CountsTheStateOfTheConfiguredOptimizer) {
  const Outcome outcome = heddle({"check", files_.path("run.yaml"), "--world-size", "1", "--json",
                                  "--optimizer", "{_target_: dion.Muon, lr: 0.01}"});
  const int64_t scalars = 2 * 256 * 24 + 5 * 24, matrices = 2 * (2 * 24 * 24 + 2 * 8 * 24 + 3 * 24 * 40);
  EXPECT_EQ(json::parse(outcome.out)["bytes_per_rank"]["optimizer"], 4 * (2 * scalars + matrices))
      << outcome.error;
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
      ::testing::AllOf(HasSubstr("on this machine nowhere/model does not exist: the model is not checked"),
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
