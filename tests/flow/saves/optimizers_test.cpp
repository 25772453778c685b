// Checkpoints of optimizers, resumed on other ranks and with another optimizer.
#include <gmock/gmock.h>

#include "flow/stops/started.h"
#include "flow/training_files.h"

namespace flow {
namespace {

using ::testing::HasSubstr;

constexpr const char* kMuon = "{_target_: dion.Muon, lr: 0.003}";

Words up_to(const std::string& steps, const std::string& optimizer, const Words& more = {}) {
  Words out = {"--step_scheduler.max_steps",
               steps,
               "--model.config.num_attention_heads",
               "2",
               "--model.config.num_key_value_heads",
               "2",
               "--optimizer",
               optimizer};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

// Whole matrices are assembled from different boxes each time.
TEST(ResumeMuon, GivesTheSameLossesOnOtherRankCounts) {
  const TrainingFiles files;
  const Words single = {"--distributed", "{strategy: single}"}, sharded = {"--nproc-per-node", "2"},
              split = {
                  "--distributed",
                  "{strategy: fsdp2, tp_size: 2, mp_policy: {param_dtype: float32, reduce_dtype: float32}}",
                  "--nproc-per-node", "2"};
  ASSERT_EQ(heddle(files.train("single", up_to("6", kMuon, single))).status, 0);
  const std::vector<double> want = column(files.path("single/training.jsonl"), "loss");
  ASSERT_LT(want.back(), want.front());
  for (const auto& [from, to] : {std::pair{sharded, split}, {split, single}}) {
    const std::string run = "run" + std::to_string(from.size());
    ASSERT_EQ(heddle(files.train(run, up_to("3", kMuon, from))).status, 0);
    const Outcome rest = heddle(files.train(run, up_to("6", kMuon, to)));
    ASSERT_EQ(rest.status, 0) << rest.error;
    const std::vector<double> got = column(files.path(run + "/training.jsonl"), "loss");
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-5 * want[i]) << i;
  }
}

TEST(ResumeOptimizer, WarnsOfOrRefusesAnotherOptimizer) {
  const TrainingFiles files;
  const Words single = {"--distributed", "{strategy: single}"};
  ASSERT_EQ(heddle(files.train("run", up_to("2", "{_target_: torch.optim.AdamW, lr: 0.003}", single))).status,
            0);
  const Outcome refused = heddle(files.train("run", up_to("4", kMuon, single)));
  EXPECT_EQ(refused.status, 2) << refused.error;
  EXPECT_THAT(refused.error,
              HasSubstr("/epoch_0_step_1/optim: was saved by the optimizer AdamW and holds no '"));
  EXPECT_THAT(refused.error, HasSubstr("hint: set optimizer._target_ to AdamW, or start a new run: "));
  const Outcome adam =
      heddle(files.train("run", up_to("4", "{_target_: torch.optim.Adam, lr: 0.003}", single)));
  EXPECT_EQ(adam.status, 0) << adam.error;
  EXPECT_THAT(adam.error,
              HasSubstr("optimizer._target_ was AdamW in the run that saved epoch_0_step_1, and is "
                        "Adam now"));
  EXPECT_THAT(
      adam.error,
      HasSubstr("optimizer.weight_decay was 0.01 in the run that saved epoch_0_step_1, and is 0 now"));
}

TEST(ResumeOptimizer, NamesAParameterThatDiffers) {
  const TrainingFiles files;
  const std::string adam = "{_target_: torch.optim.AdamW, lr: 0.003}";
  const Words single = {"--distributed", "{strategy: single}"};
  Words frozen = single;
  frozen.insert(frozen.end(), {"--freeze_config", "{patterns: [embed_tokens]}"});
  ASSERT_EQ(heddle(files.train("run", up_to("2", adam, frozen))).status, 0);
  const Outcome refused = heddle(files.train("run", up_to("4", adam, single)));
  EXPECT_EQ(refused.status, 2) << refused.error;
  EXPECT_THAT(refused.error,
              HasSubstr("/epoch_0_step_1/optim: holds no 'exp_avg.model.embed_tokens.weight': the run that "
                        "saved it did not train model.embed_tokens.weight, and this one does\n  hint: "
                        "restore the settings that select the trained parameters (sections such as peft and "
                        "freeze_config), or start a new run: "));
}

TEST(ResumeOptimizer, RefusesAPluginWithOtherStateNames) {
  const TrainingFiles files;
  const Words own = {"--plugins", "[" HEDDLE_BINARY_DIR "/tests/bad_plugins/libheddle_faulty_optimizer.so]"};
  const std::string faulty = "{_target_: faulty, lr: 0.003}";
  ASSERT_EQ(heddle(files.train("run", up_to("2", faulty, own))).status, 0);
  const Outcome refused = heddle(files.train("run", up_to("4", faulty, own)), {"HEDDLE_FAULT=renames_state"});
  EXPECT_EQ(refused.status, 2) << refused.error;
  EXPECT_THAT(refused.error,
              HasSubstr("/epoch_0_step_1/optim: holds no 'momentum.model.embed_tokens.weight': "
                        "faulty saved different state of model.embed_tokens.weight than it needs now\n  "
                        "hint: resume with the version of the plugin that saved it, or start a new run: "));
}

}  // namespace
}  // namespace flow
