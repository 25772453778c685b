// Checkpoints that a run keeps, the best checkpoint, and resuming from it.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include "flow/stops/started.h"
#include "flow/training_files.h"
#include "tests/main/with_all.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("Retention.*");

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

const Words kTwo = {"--nproc-per-node",
                    "2",
                    "--checkpoint.save_consolidated",
                    "false",
                    "--step_scheduler.ckpt_every_steps",
                    "1"};

std::vector<std::string> epochs_in(const TrainingFiles& files) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(files.path("run")))
    if (entry.path().filename().string().starts_with("epoch_"))
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string set(const TrainingFiles& files) {
  return "{file_pattern: " + files.path("train.bin") + ", seq_len: 900}";
}

const Words kWide = {"--model.config.max_position_embeddings", "900"};

// The learning rate rises until it destroys the model, so the best checkpoint is not the newest.
TEST(Retention, KeepsTheNewestAndBestResumableCheckpoints) {
  const TrainingFiles files;
  const Words run =
      plus(plus(kTwo, kWide), {"--validation_dataset", set(files), "--lr_scheduler",
                               "{lr_decay_style: constant, lr_warmup_steps: 4, init_lr: 0.001, max_lr: 3.0}",
                               "--checkpoint.max_recent_checkpoints", "2"});
  const Outcome first = heddle(plus(files.train("run", run), {"--step_scheduler.max_steps", "6"}));
  ASSERT_EQ(first.status, 0) << first.error;
  const std::vector<double> losses = column(files.path("run/validation.jsonl"), "loss");
  ASSERT_EQ(losses.size(), 6u);
  const auto best = std::min_element(losses.begin(), losses.end()) - losses.begin();
  ASSERT_LT(best, 4);  // older than the newest checkpoints that are kept
  const std::string name = "epoch_0_step_" + std::to_string(best);
  EXPECT_EQ(epochs_in(files), (std::vector<std::string>{name, "epoch_0_step_4", "epoch_0_step_5"}));
  EXPECT_EQ(fs::read_symlink(files.path("run/LOWEST_VAL")), name);
  EXPECT_EQ(column(files.path("run/" + name + "/losses.json"), "val_loss"),
            std::vector<double>{losses[best]});

  for (const char* newer : {"epoch_0_step_4", "epoch_0_step_5"}) fs::remove_all(files.path("run/") + newer);
  const Outcome back = heddle(plus(files.train("run", run), {"--checkpoint.restore_from", "LOWEST_VAL",
                                                             "--step_scheduler.max_steps", "6"}));
  ASSERT_EQ(back.status, 0) << back.error;
  EXPECT_THAT(back.out, HasSubstr("resumes " + files.path("run/" + name)));
  EXPECT_EQ(column(files.path("run/validation.jsonl"), "loss"), losses);  // the same bits again
}

TEST(Retention, FollowsTheNamedValidationSet) {
  const TrainingFiles files;
  const Words run = plus(plus(kTwo, kWide), {"--step_scheduler.max_steps", "1"});
  files.write("sets.yaml", read_text(files.path("run.yaml")) + "validation_dataset_code: " + set(files) +
                               "\nvalidation_dataset_text: " + set(files) + "\n");
  const auto train = [&](const Words& more) {
    Words words = plus(files.train("run", run), more);
    words[1] = files.path("sets.yaml");
    return heddle(words);
  };
  const Outcome unknown = train({"--checkpoint.best_metric_key", "cod"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.error,
              HasSubstr("checkpoint.best_metric_key: no validation set is named 'cod'; the recipe has "
                        "code, text\n  hint: did you mean 'code'?"));
  const Outcome none = train({});
  EXPECT_EQ(none.status, 0) << none.error;
  EXPECT_THAT(none.error, HasSubstr("warning: LOWEST_VAL is not updated because no validation set is the "
                                    "default; set checkpoint.best_metric_key"));
  EXPECT_FALSE(fs::exists(files.path("run/LOWEST_VAL")));
  fs::remove_all(files.path("run"));
  const Outcome code = train({"--checkpoint.best_metric_key", "code"});
  EXPECT_EQ(code.status, 0) << code.error;
  EXPECT_EQ(fs::read_symlink(files.path("run/LOWEST_VAL")), "epoch_0_step_0");
  EXPECT_EQ(column(files.path("run/epoch_0_step_0/losses.json"), "code"),
            column(files.path("run/validation_code.jsonl"), "loss"));
}

TEST(Retention, RemovesTheFilesOfInterruptedRuns) {
  const TrainingFiles files;
  fs::create_directories(files.path("run/epoch_3_step_99.incomplete/model"));
  fs::create_directories(files.path("run/epoch_3_step_98.removed/model"));
  const Outcome outcome = heddle(plus(files.train("run", kTwo), {"--step_scheduler.max_steps", "1"}));
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  for (const char* name : {"epoch_3_step_98.removed", "epoch_3_step_99.incomplete"}) {
    EXPECT_THAT(outcome.error,
                HasSubstr("warning: removed " + files.path("run/") + name + ", left by an interrupted run"));
    EXPECT_FALSE(fs::exists(files.path("run/") + name));
  }
}

TEST(Retention, RefusesADirectoryWhereAnotherRunSaves) {
  const TrainingFiles files;
  const Words endless = {"--step_scheduler.max_steps", "1000000", "--step_scheduler.num_epochs", "1000000"};
  Started first(plus(files.train("run"), endless));
  ASSERT_TRUE(eventually([&] { return !column(files.path("run/training.jsonl"), "step").empty(); }));
  const Outcome second = heddle(files.train("run", {"--nproc-per-node", "2"}));
  EXPECT_EQ(second.status, 2);
  EXPECT_THAT(second.error,
              HasSubstr("error[config] checkpoint.checkpoint_dir: another run saves in " + files.path("run") +
                        ": process " + std::to_string(first.pid()) + " on "));
  EXPECT_THAT(second.error,
              HasSubstr("hint: stop that run, or set checkpoint.checkpoint_dir to another directory"));
  kill(first.pid(), SIGTERM);
  EXPECT_EQ(first.wait().status, 143);
}

}  // namespace
}  // namespace flow
