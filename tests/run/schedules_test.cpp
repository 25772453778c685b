// Learning rates, weight decays, and the order of steps and epochs.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "heddle/base/error.h"
#include "lib/run/spec/lr_schedule.h"
#include "lib/run/spec/step_scheduler.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNear = 1e-12;

LrSection section_of(const std::string& style, int64_t warmup, int64_t decay) {
  LrSection section;
  section.lr_decay_style = style;
  section.lr_warmup_steps = warmup;
  section.lr_decay_steps = decay;
  section.init_lr = 0.1;
  section.max_lr = 1.0;
  section.min_lr = 0.1;
  section.where = "run.yaml:9 lr_scheduler";
  return section;
}

TEST(LrSchedule, IsConstantWithoutASection) {
  const LrSchedule schedule(std::nullopt, {.lr = 0.25, .weight_decay = 0.5}, 100);
  for (const int64_t step : {0, 1, 99, 1000}) {
    EXPECT_EQ(schedule.lr(step), 0.25);
    EXPECT_EQ(schedule.weight_decay(step), 0.5);
  }
}

TEST(LrSchedule, WarmsUpLinearlyAndDecaysByStyle) {
  struct Row {
    const char* style;
    int64_t warmup, decay, step;
    double lr;
  };
  for (const Row& row : {Row{"cosine", 0, 100, 0, 1.0},
                         {"cosine", 0, 100, 50, 0.55},
                         {"cosine", 0, 100, 100, 0.1},
                         {"cosine", 0, 100, 500, 0.1},
                         {"cosine", 10, 100, 0, 0.1},
                         {"cosine", 10, 100, 5, 0.55},
                         {"cosine", 10, 100, 10, 1.0},
                         {"cosine", 10, 100, 55, 0.55},
                         {"linear", 0, 100, 25, 0.775},
                         {"linear", 0, 100, 100, 0.1},
                         {"constant", 10, 100, 5, 0.55},
                         {"constant", 10, 100, 1000, 1.0},
                         {"inverse-square-root", 4, 1000, 16, 0.5},
                         {"inverse-square-root", 4, 1000, 900, 0.1}})
    EXPECT_NEAR(LrSchedule(section_of(row.style, row.warmup, row.decay), {}, row.decay).lr(row.step), row.lr,
                kNear)
        << row.style << " " << row.step;
}

TEST(LrSchedule, HoldsAndThenDecaysForWsd) {
  LrSection section = section_of("WSD", 0, 100);
  section.wsd_decay_steps = 20;
  section.lr_wsd_decay_style = "linear";
  EXPECT_NEAR(LrSchedule(section, {}, 100).lr(80), 1.0, kNear);
  EXPECT_NEAR(LrSchedule(section, {}, 100).lr(90), 0.55, kNear);
  section.lr_wsd_decay_style = "cosine";
  EXPECT_NEAR(LrSchedule(section, {}, 100).lr(85), 0.1 + 0.9 * 0.5 * (1 + std::sqrt(0.5)), kNear);
  section.lr_wsd_decay_style = "exponential";
  EXPECT_NEAR(LrSchedule(section, {}, 100).lr(90), 0.1 + 0.9 * (2 * std::sqrt(0.5) - 1), kNear);
  section.lr_wsd_decay_style = "minus_sqrt";
  EXPECT_NEAR(LrSchedule(section, {}, 100).lr(85), 0.55, kNear);
}

TEST(LrSchedule, DerivesDefaultsFromTheRun) {
  LrSection section;
  const LrSchedule schedule(section, {.lr = 1.0, .weight_decay = 0.0}, 200);  // a warmup of 20 steps
  EXPECT_NEAR(schedule.lr(0), 0.1, kNear);
  EXPECT_NEAR(schedule.lr(20), 1.0, kNear);
  EXPECT_NEAR(schedule.lr(200), 0.01, kNear);
}

TEST(LrSchedule, RaisesTheWeightDecay) {
  LrSection section = section_of("constant", 0, 1000);
  section.start_wd = 0.01;
  section.end_wd = 0.1;
  section.wd_incr_steps = 500;
  section.wd_incr_style = "linear";
  EXPECT_NEAR(LrSchedule(section, {}, 1000).weight_decay(250), 0.055, kNear);
  EXPECT_NEAR(LrSchedule(section, {}, 1000).weight_decay(900), 0.1, kNear);
  section.wd_incr_style = "cosine";
  EXPECT_NEAR(LrSchedule(section, {}, 1000).weight_decay(250), 0.055, kNear);
  EXPECT_NEAR(LrSchedule(section, {}, 1000).weight_decay(0), 0.01, kNear);
}

StepSection steps_of(int64_t global, int64_t local) {
  StepSection section;
  section.global_batch_size = global;
  section.local_batch_size = local;
  section.num_epochs = 1;
  section.ckpt_every_steps = 1000;
  return section;
}

std::vector<StepInfo> all_of(StepScheduler scheduler) {
  std::vector<StepInfo> out;
  while (auto info = scheduler.next()) out.push_back(*info);
  return out;
}

std::vector<int64_t> checkpoints_of(StepScheduler scheduler) {
  std::vector<int64_t> out;
  for (const StepInfo& info : all_of(std::move(scheduler)))
    if (info.checkpoint) out.push_back(info.step);
  return out;
}

TEST(StepScheduler, TrainsOnTheRemainderOfAnEpoch) {
  const auto moments = all_of(StepScheduler(steps_of(2, 1), 1, 5));
  ASSERT_EQ(moments.size(), 3u);
  EXPECT_EQ(moments[0].end - moments[0].begin, 2);
  EXPECT_EQ(moments[2].begin, 4);
  EXPECT_EQ(moments[2].end, 5);
  EXPECT_TRUE(moments[2].last);
}

TEST(StepScheduler, SavesEveryFewStepsAndAtTheEndOfAStream) {
  StepSection section = steps_of(1, 1);
  section.max_steps = 10;
  section.ckpt_every_steps = 4;
  EXPECT_THAT(checkpoints_of(StepScheduler(section, 1, std::nullopt)), ElementsAre(3, 7, 9));
}

TEST(StepScheduler, SavesAtTheEndOfEachEpoch) {
  StepSection section = steps_of(1, 1);
  section.num_epochs = 10;
  section.max_steps = 10;
  EXPECT_THAT(checkpoints_of(StepScheduler(section, 1, 4)), ElementsAre(3, 7, 9));
  section.save_checkpoint_every_epoch = false;
  EXPECT_THAT(checkpoints_of(StepScheduler(section, 1, 4)), ElementsAre(9));
}

TEST(StepScheduler, CountsEpochs) {
  StepSection section = steps_of(1, 1);
  section.num_epochs = 10;
  section.max_steps = 10;
  std::vector<int64_t> epochs;
  for (const StepInfo& info : all_of(StepScheduler(section, 1, 4))) epochs.push_back(info.epoch);
  EXPECT_THAT(epochs, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2));
}

TEST(StepScheduler, EndsOnceWhenEpochsRunOutBeforeMaxSteps) {
  StepSection section = steps_of(1, 1);
  section.num_epochs = 2;
  section.max_steps = 100;
  const StepScheduler scheduler(section, 1, 3);
  EXPECT_TRUE(scheduler.short_of_max_steps());
  EXPECT_EQ(scheduler.total_steps(), 6);
  int64_t last = 0;
  for (const StepInfo& info : all_of(scheduler)) last += info.last;
  EXPECT_EQ(last, 1);
}

TEST(StepScheduler, PredictsItsLastStep) {
  StepSection section = steps_of(2, 1);
  section.num_epochs = 3;
  const StepScheduler scheduler(section, 1, 7);
  EXPECT_EQ(scheduler.last(), all_of(scheduler).back());
  EXPECT_TRUE(scheduler.saves_before_the_end());
  section.num_epochs = 1;
  EXPECT_FALSE(StepScheduler(section, 1, 7).saves_before_the_end());
}

TEST(StepScheduler, TreatsOverflowingEpochsAsEndless) {
  StepSection section = steps_of(2, 1);
  section.num_epochs = std::numeric_limits<int64_t>::max() / 3;  // epochs of four steps
  EXPECT_EQ(StepScheduler(section, 1, 7).total_steps(), std::numeric_limits<int64_t>::max());
  section.max_steps = 9;
  EXPECT_EQ(StepScheduler(section, 1, 7).total_steps(), 9);
}

TEST(StepScheduler, ResumesAtTheNextStep) {
  StepSection section = steps_of(2, 1);
  section.num_epochs = 3;
  section.val_every_steps = 2;
  std::vector<StepInfo> whole = all_of(StepScheduler(section, 1, 7));
  StepScheduler resumed(section, 1, 7);  // resumes from a checkpoint of step 5
  resumed.go_on_from(5);
  section.start_step = 5;
  section.start_epoch = 1;
  whole.erase(whole.begin(), whole.begin() + 5);
  EXPECT_EQ(all_of(StepScheduler(section, 1, 7)), whole);
  EXPECT_EQ(all_of(std::move(resumed)), whole);
}

TEST(StepScheduler, SavesOncePerEpochByDefault) {
  StepSection section = steps_of(1, 1);
  section.ckpt_every_steps = std::nullopt;
  section.save_checkpoint_every_epoch = false;
  section.num_epochs = 2;
  EXPECT_THAT(checkpoints_of(StepScheduler(section, 1, 10)), ElementsAre(9, 19));
  section.max_steps = 10;
  EXPECT_THAT(checkpoints_of(StepScheduler(section, 1, std::nullopt)), ElementsAre(4, 9));
}

TEST(StepScheduler, ValidatesEveryFewStepsAndAtCheckpoints) {
  StepSection section = steps_of(1, 1);
  section.val_every_steps = 2;
  std::vector<bool> validations;
  for (const StepInfo& info : all_of(StepScheduler(section, 1, 5))) validations.push_back(info.validate);
  EXPECT_THAT(validations, ElementsAre(false, true, false, true, true));
  section.validate_on_checkpoint = false;
  EXPECT_FALSE(all_of(StepScheduler(section, 1, 5)).back().validate);
}

TEST(StepScheduler, DerivesEpochsFromMaxStepsForNull) {
  StepSection section = steps_of(1, 1);
  section.num_epochs = std::nullopt;
  section.max_steps = 7;
  EXPECT_EQ(StepScheduler(section, 1, 3).total_steps(), 7);
  section.max_steps = std::nullopt;
  EXPECT_EQ(StepScheduler(section, 1, 3).total_steps(), 30);
}

TEST(StepScheduler, RefusesAStreamWithoutAnEnd) {
  try {
    StepScheduler scheduler(steps_of(1, 1), 1, std::nullopt);
    FAIL() << "a stream without max_steps was taken";
  } catch (const Error& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr(
            "Cannot infer total steps for an iterable/streaming dataset; set step_scheduler.max_steps."));
  }
}

}  // namespace
}  // namespace heddle
