// Non-finite gradients and parameters: updates are skipped, intact checkpoints are kept, and the run ends
// with status 1.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "flow/stops/started.h"
#include "model_files.h"
#include "tests/main/with_all.h"

namespace flow {
namespace {

HEDDLE_WITH_ALL("SkippedUpdates.*");

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const Words kFragile = {"--clip_grad_norm",
                        "none",
                        "--checkpoint.max_recent_checkpoints",
                        "1",
                        "--step_scheduler.ckpt_every_steps",
                        "2"};

std::string saved_tensors(const std::string& checkpoint) {
  return read_text(checkpoint + "/model/manifest.json") + read_text(checkpoint + "/optim/manifest.json");
}

size_t times_found(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// The update of the fifth step is as large as its learning rate, and the forward of the sixth overflows.
TEST(NotFinite, EndsTheRunAfterTenSkippedUpdatesAndKeepsGoodCheckpoints) {
  const TrainingFiles files;
  const auto run = [&](const Words& more) {
    return heddle(plus(files.train("run", plus(kFragile, {"--nproc-per-node", "2"})), more));
  };
  ASSERT_EQ(run({"--step_scheduler.max_steps", "4"}).status, 0);
  const std::string good = files.path("run/epoch_0_step_3"), before = saved_tensors(good);
  const Outcome outcome = run({"--optimizer.lr", "1e30", "--step_scheduler.max_steps", "30"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(
      outcome.error,
      HasSubstr("error[diverged] step_scheduler.max_skipped_updates: the updates of steps 6 to 15 were "
                "skipped because the loss or the gradient norm was nan, inf or too large\n"
                "  hint: lower optimizer.lr or set clip_grad_norm; epoch_0_step_3 was saved before these "
                "steps; resume from it with --checkpoint.restore_from epoch_0_step_3\n"));
  EXPECT_THAT(outcome.error,
              HasSubstr("warning: step 6: update skipped: the gradient norm is nan; 1 in a row, "
                        "the run stops at 10\n"));
  EXPECT_EQ(saved_tensors(good), before);
  const std::string lines = read_text(files.path("run/training.jsonl"));
  EXPECT_EQ(times_found(lines, "\"skipped\":false"), 5u);
  EXPECT_EQ(times_found(lines, "\"skipped\":true"), 10u);
  EXPECT_THAT(read_text(files.path("run/loss.svg")), HasSubstr("skipped, 10"));
  // Nothing is saved while at least as many updates are skipped as applied.
  EXPECT_EQ(fs::read_symlink(files.path("run/LATEST")), "epoch_0_step_3");
  EXPECT_FALSE(fs::exists(files.path("run/epoch_0_step_5")));
  EXPECT_THAT(outcome.error,
              HasSubstr("warning: after step 6 nothing is saved: 1 of 2 updates were skipped"));
}

TEST(NotFinite, EndsWithStatus1WhenMostUpdatesWereSkipped) {
  const TrainingFiles files;
  const auto run = [&](const Words& more) {
    return heddle(plus(files.train("run", plus(kFragile, {"--nproc-per-node", "2"})), more));
  };
  ASSERT_EQ(run({"--step_scheduler.max_steps", "2"}).status, 0);
  const Outcome outcome = run({"--optimizer.lr", "1e30", "--step_scheduler.max_steps", "6"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.error, HasSubstr("error[diverged] training: after step 6 nothing is saved: 3 of 4 "
                                       "updates were skipped because the loss or the gradient norm was nan, "
                                       "inf or too large\n  hint: lower optimizer.lr or set clip_grad_norm; "
                                       "epoch_0_step_1 was saved before these steps"));
  EXPECT_EQ(fs::read_symlink(files.path("run/LATEST")), "epoch_0_step_1");
  EXPECT_FALSE(fs::exists(files.path("run/epoch_0_step_3")));
  EXPECT_FALSE(fs::exists(files.path("run/epoch_0_step_5")));
  EXPECT_TRUE(fs::exists(files.path("run/loss.svg")));
}

TEST(NotFinite, ParametersAreNotSavedAndRemoveNoCheckpoint) {
  const TrainingFiles files;
  for (const char* async : {"false", "true"}) {
    const std::string name = std::string("run_") + async;
    const auto run = [&](const Words& more) {
      return heddle(
          plus(files.train(name, plus(kFragile, {"--checkpoint.is_async", async, "--nproc-per-node", "2"})),
               more));
    };
    ASSERT_EQ(run({"--step_scheduler.max_steps", "3"}).status, 0);
    const Outcome outcome = run({"--optimizer.lr", "1e39"});
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.error, HasSubstr("error[diverged] checkpoint: the parameter 'model."));
    EXPECT_THAT(outcome.error,
                HasSubstr("' holds inf or nan after step 4: nothing is saved\n  hint: lower "
                          "optimizer.lr or set clip_grad_norm; epoch_0_step_2 was saved before"));
    EXPECT_EQ(fs::read_symlink(files.path(name + "/LATEST")), "epoch_0_step_2");
    EXPECT_TRUE(fs::exists(files.path(name + "/epoch_0_step_2/step_scheduler.json")));
    EXPECT_FALSE(fs::exists(files.path(name + "/epoch_0_step_3")));
  }
}

TEST(NotFinite, UpdatesAreSkippedWithoutALimitWhenNoneIsSet) {
  const TrainingFiles files;
  const Outcome outcome = heddle(files.train(
      "run", plus(kFragile, {"--optimizer.lr", "1e30", "--step_scheduler.max_skipped_updates", "none"})));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.error, HasSubstr("update skipped: the gradient norm is nan; 11 in a row\n"));
  EXPECT_THAT(outcome.error, HasSubstr("after step 12 nothing is saved: 11 of 12 updates were skipped"));
}

// The divisor of a gradient is not finite if its norm exceeds max_norm times the largest float32. A limit
// between the norms of a run therefore makes it skip some updates.
TEST(SkippedUpdates, AreSkippedAgainOnABitForBitResume) {
  const TrainingFiles files;
  const auto words = [](double max_norm, const char* steps) {
    char text[64];
    std::snprintf(text, sizeof(text), "{max_norm: %.17g}", max_norm);
    return Words{"--clip_grad_norm", text, "--step_scheduler.max_steps", steps};
  };
  constexpr double kMost = 3.4028234663852886e38;
  ASSERT_EQ(heddle(plus(files.train("probe"), words(1e-37, "8"))).status, 0);
  std::vector<double> norms = column(files.path("probe/training.jsonl"), "grad_norm");
  std::sort(norms.begin(), norms.end());
  const double limit = (norms[5] + norms[6]) / 2 / kMost;
  const std::vector<std::pair<std::string, Words>> topologies = {
      {"alone", {}},
      {"mixed", {"--nproc-per-node", "2", "--model.dtype", "bfloat16", "--optimizer.master_weights", "true"}},
      {"stages",
       {"--distributed", "{strategy: ddp, pp_size: 2, pipeline: {pp_schedule: 1f1b, pp_microbatch_size: 1}}",
        "--nproc-per-node", "2"}}};
  for (const auto& [name, topology] : topologies) {
    const Outcome whole = heddle(plus(plus(files.train(name + "_whole"), topology), words(limit, "8")));
    ASSERT_EQ(whole.status, 0) << whole.error;
    ASSERT_EQ(heddle(plus(plus(files.train(name + "_cut"), topology), words(limit, "5"))).status, 0);
    ASSERT_EQ(heddle(plus(plus(files.train(name + "_cut"), topology), words(limit, "8"))).status, 0);
    const std::string lines = without_clock(files.path(name + "_whole/training.jsonl"));
    EXPECT_GE(times_found(lines, "\"skipped\":true"), 2u) << name;
    EXPECT_GE(times_found(lines, "\"skipped\":false"), 2u) << name;
    EXPECT_EQ(without_clock(files.path(name + "_cut/training.jsonl")), lines) << name;
    EXPECT_EQ(saved_tensors(files.path(name + "_cut/epoch_0_step_7")),
              saved_tensors(files.path(name + "_whole/epoch_0_step_7")))
        << name;
  }
}

TEST(NotFinite, ModelsAreRefusedBeforeTheFirstStep) {
  const TrainingFiles files;
  ASSERT_EQ(heddle(files.train("run", {"--step_scheduler.max_steps", "1"})).status, 0);
  const std::string model = files.path("run/epoch_0_step_0/model/consolidated"),
                    file = model + "/model.safetensors";
  {
    std::fstream weights(file, std::ios::binary | std::ios::in | std::ios::out);
    weights.seekp(-4, std::ios::end);
    weights.write("\x00\x00\xc0\x7f", 4);  // nan
  }
  const Outcome outcome =
      heddle(files.train("other", {"--model", "{pretrained_model_name_or_path: " + model + "}"}));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.error, HasSubstr("error[input] " + model + ": the parameter '"));
  EXPECT_THAT(outcome.error,
              HasSubstr("' holds inf or nan\n  hint: give a model whose parameters are finite\n"));
  EXPECT_FALSE(fs::exists(files.path("other/training.jsonl")));
}

}  // namespace
}  // namespace flow
