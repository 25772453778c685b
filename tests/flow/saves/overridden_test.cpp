// A run of a pretrained model with overridden keys of config.json: header, export, resuming.
#include <gmock/gmock.h>

#include <filesystem>
#include <string>

#include "flow/model_files.h"
#include "flow/stops/started.h"

namespace flow {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kModel = kGolden + "mixtral";

// The model's vocabulary has 64 tokens.
void write_digits_beside(const TrainingFiles& files) {
  std::string digits;
  for (int i = 0; i < 2000; ++i) digits += std::to_string(i % 97) + " ";
  files.write("digits.txt", digits);
  ASSERT_EQ(heddle({"data", files.path("digits.txt"), "--out", files.path("digits.bin")}).status, 0);
}

Outcome run_overridden(const TrainingFiles& files, const std::string& run, const std::string& config,
                       const char* steps, const Words& more = {}) {
  return heddle(files.train(
      run, plus({"--model", "{pretrained_model_name_or_path: " + kModel + ", config: " + config + "}",
                 "--dataset.file_pattern", files.path("digits.bin"), "--step_scheduler.max_steps", steps,
                 "--distributed", "{strategy: single}"},
                more)));
}

TEST(Overridden, KeysAppearInTheHeaderButNotInTheExport) {
  const TrainingFiles files;
  write_digits_beside(files);
  const std::string keys = "{router_aux_loss_coef: 0.5}";
  const Outcome first = run_overridden(files, "run", keys, "2");
  ASSERT_EQ(first.status, 0) << first.error;
  EXPECT_THAT(
      first.out,
      HasSubstr(
          "\n  config  router_aux_loss_coef 0.5 for this run; exports have the model's own config.json\n"));
  const std::string exported = files.path("run/epoch_0_step_1/model/consolidated/config.json");
  EXPECT_EQ(read_text(exported), read_text(kModel + "/config.json"));

  const Outcome same = run_overridden(files, "run", keys, "3");
  EXPECT_EQ(same.status, 0) << same.error;
  EXPECT_THAT(same.error, Not(HasSubstr("router_aux_loss_coef")));
  const Outcome other = run_overridden(files, "run", "{router_aux_loss_coef: 0.25}", "4");
  EXPECT_EQ(other.status, 0) << other.error;
  EXPECT_THAT(other.error,
              HasSubstr("warning: model.config.router_aux_loss_coef was 0.5 in the run that saved "
                        "epoch_0_step_2, and is 0.25 now"));

  const Outcome asked = run_overridden(files, "asked", keys, "2", {"--model.export_config", "true"});
  EXPECT_THAT(asked.out, HasSubstr("router_aux_loss_coef 0.5 for this run, also in exports\n"));
  // rope_parameters sets its own base, so this key has no effect and the header does not show it.
  const Outcome idle = run_overridden(files, "idle", "{rope_theta: 5.0, router_aux_loss_coef: 0.5}", "1");
  EXPECT_THAT(idle.error, HasSubstr("model.config.rope_theta has no effect"));
  EXPECT_THAT(idle.out, HasSubstr("\n  config  router_aux_loss_coef 0.5 for this run;"));
  EXPECT_THAT(read_text(files.path("asked/epoch_0_step_1/model/consolidated/config.json")),
              HasSubstr("\"router_aux_loss_coef\": 0.5,"));
}

TEST(Overridden, KeysThatChangeShapesAreRefusedBeforeTheRun) {
  const TrainingFiles files;
  const Outcome outcome =
      heddle({"check", files.path("run.yaml"), "--model",
              "{pretrained_model_name_or_path: " + kModel + ", config: {hidden_size: 48}}"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error, HasSubstr("the keys change the parameters of " + kModel + ": "));
}

}  // namespace
}  // namespace flow
