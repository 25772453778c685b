// Resuming with other data or other settings: refused, accepted, reported.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "flow/stops/started.h"
#include "flow/training_files.h"

namespace flow {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Words ended_at(const std::string& steps) {
  return {"--step_scheduler.max_steps", steps};
}

TEST(ResumeChecks, RefusesOtherDataOfEqualLengthUnlessAccepted) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(plus(files.train("run"), ended_at("2"))).status, 0);
  std::filesystem::rename(files.path("train.bin"), files.path("moved.bin"));
  const auto train = [&](const char* steps, const Words& more) {
    return heddle(plus(plus(files.train("run", {"--dataset.file_pattern", files.path("moved.bin")}), more),
                       ended_at(steps)));
  };
  const Outcome moved = train("3", {});
  EXPECT_EQ(moved.status, 0) << moved.error;
  EXPECT_THAT(moved.error, Not(HasSubstr("in the run that saved")));
  std::string bytes = read_text(files.path("moved.bin"));
  std::swap(bytes[1030], bytes[1034]);
  std::ofstream(files.path("moved.bin"), std::ios::binary) << bytes;
  const Outcome refused = train("4", {});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.error, HasSubstr(" was saved with a different data order: the data set was "));
  EXPECT_THAT(refused.error, HasSubstr(". --checkpoint.accept_other_data true resumes at the same step with "
                                       "the new data in its own order\n"));
  const Outcome checked = heddle({"check", files.path("run.yaml"), "--checkpoint.checkpoint_dir",
                                  files.path("run"), "--dataset.file_pattern", files.path("moved.bin")});
  EXPECT_EQ(checked.status, 2);
  EXPECT_THAT(checked.error, HasSubstr(" was saved with a different data order: the data set was "));
  const Outcome accepted = train("4", {"--checkpoint.accept_other_data", "true"});
  EXPECT_EQ(accepted.status, 0) << accepted.error;
  EXPECT_THAT(accepted.error, HasSubstr("warning: the data set was "));
}

// A mixture's balance loss is a mean over microbatches. A dense model does not depend on them.
TEST(ResumeChecks, WarnsOfMicrobatchesOfMixturesAlone) {
  const TrainingFiles files;
  const auto resume = [&](const std::string& run, const Words& model) {
    EXPECT_EQ(heddle(plus(files.train(run, model), ended_at("2"))).status, 0);
    const Outcome outcome = heddle(
        plus(files.train(run, plus(model, {"--step_scheduler.local_batch_size", "4"})), ended_at("3")));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return outcome.error;
  };
  const std::string warning =
      "step_scheduler.local_batch_size was 2 in the run that saved epoch_0_step_1, and is 4 now";
  EXPECT_THAT(resume("dense", {}), Not(HasSubstr("local_batch_size")));
  EXPECT_THAT(
      resume("mixture", {"--model.config.model_type", "mixtral", "--model.config.num_local_experts", "4"}),
      HasSubstr(warning));
}

TEST(ResumeChecks, NamesEachSettingThatChangesNumbers) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(plus(files.train("run"), ended_at("2"))).status, 0);
  const Outcome outcome =
      heddle(plus(files.train("run", {"--optimizer.betas", "[0.8, 0.95]", "--optimizer.weight_decay", "0.2",
                                      "--clip_grad_norm", "{max_norm: 2.0}", "--freeze_config",
                                      "{freeze_embeddings: true}", "--distributed", "{strategy: ddp}",
                                      "--step_scheduler.ckpt_every_steps", "7"}),
                  ended_at("4")));
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  const std::string end = " in the run that saved epoch_0_step_1, and is ";
  for (const std::string& text :
       {"optimizer.betas was [0.9, 0.999]" + end + "[0.8, 0.95] now\n",
        "optimizer.weight_decay was 0.1" + end + "0.2 now\n",
        "clip_grad_norm.max_norm was 1" + end + "2 now\n",
        "freeze_config was null" + end + "embeddings true, language_model false now\n"})
    EXPECT_THAT(outcome.error, HasSubstr("warning: " + text));
  size_t lines = 0;
  for (size_t at = 0; (at = outcome.error.find(end, at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 4u) << outcome.error;
}

TEST(ResumeChecks, IgnoresASectionThatChangesNothing) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(plus(files.train("run"), ended_at("2"))).status, 0);
  const Outcome off = heddle(plus(files.train("run", {"--fp8", "{enabled: false}"}), ended_at("3")));
  EXPECT_EQ(off.status, 0) << off.error;
  EXPECT_THAT(off.error, Not(HasSubstr("in the run that saved")));
  const Outcome other = heddle(plus(files.train("run", {"--neftune", "{noise_alpha: 5.0}"}), ended_at("4")));
  EXPECT_EQ(other.status, 0) << other.error;
  EXPECT_THAT(other.error, HasSubstr("warning: neftune was null in the run that saved epoch_0_step_2"));
}

}  // namespace
}  // namespace flow
