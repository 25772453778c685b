// Settings that would do nothing, settings that differ from a checkpoint's, and memory that is not there.
#include "lib/run/preflight/no_effect.h"

#include <gmock/gmock.h>

#include <limits>

#include "lib/run/checkpointing/skipped.h"
#include "lib/run/preflight/rank_size.h"
#include "lib/run/spec/settings.h"
#include "tests/thrown.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(WithoutEffect, RefusesAGlobalBatchLargerThanTheData) {
  StepSection steps;
  steps.global_batch_size = 8;
  steps.where = "run.yaml:2 step_scheduler.global_batch_size";
  EXPECT_EQ(tests::thrown_by([&] { check_batch(steps, 8); }), "");
  EXPECT_EQ(
      tests::thrown_by([&] { check_batch(steps, 5, 40); }),
      "error[config] run.yaml:2 step_scheduler.global_batch_size: global_batch_size (8) is larger than "
      "the data set: it has 5 packs of 40 samples\n  hint: make step_scheduler.global_batch_size at most 5, "
      "packed_sequence.packed_sequence_size smaller, or give more data");
}

TEST(ChangedSettings, AreOneLineEachWithBothValues) {
  EXPECT_THAT(changed_settings("epoch_0_step_3", {{"a", "1"}},
                               {{"a", "1"}, {"distributed.b", "null"}, {"distributed.c", "[]"}}),
              IsEmpty());
  EXPECT_THAT(changed_settings("epoch_0_step_3", {{"a", "1"}}, {{"a", "1"}, {"distributed.b", "2"}}),
              ElementsAre("distributed.b was not set in the run that saved epoch_0_step_3, and is 2 now"));
  EXPECT_THAT(changed_settings("epoch_0_step_3", {{"a", "1"}, {"model.config.b", "2"}}, {{"a", "3"}}),
              ElementsAre("a was 1 in the run that saved epoch_0_step_3, and is 3 now",
                          "model.config.b was 2 in the run that saved epoch_0_step_3, and is not set now"));
  EXPECT_THAT(changed_settings("epoch_0_step_3", {}, {{"a", "3"}}),
              ElementsAre("epoch_0_step_3 was saved by an older heddle, without a digest of its data and "
                          "settings: whether they are the same is not known"));
}

TEST(MemoryBeforeARun, IsRefusedWhereItCannotBe) {
  RankSizes sizes;
  sizes.most.held = sizes.most.gradients = int64_t{4} << 30;
  sizes.most.optimizer = int64_t{8} << 30;
  sizes.average = 12.0 * (1 << 30);
  ModelSection section;
  section.where = "run.yaml:3 model";
  const double memory = 20.0 * (1 << 30);
  const auto refusal = [&](int ranks) {
    return tests::thrown_by([&] { check_memory(sizes, section, ranks, memory); });
  };
  EXPECT_EQ(refusal(1), "");
  EXPECT_EQ(refusal(2),
            "error[config] run.yaml:3 model: parameters, gradients and the optimizer of 2 ranks on this "
            "machine take 24.00 GiB, and the machine has 20.00 GiB\n"
            "  hint: split the model over more machines, or train a smaller one or in bfloat16; "
            "--model.check_memory false starts the run all the same");
  sizes.most.held = sizes.most.optimizer = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(refusal(1), HasSubstr("the optimizer of a rank take 16.00 EiB, and the machine has 20.00 GiB"));
  section.check_memory = false;
  EXPECT_EQ(refusal(2), "");
}

TEST(SkippedUpdatesOfARun, SayWhyNothingIsSaved) {
  SkippedUpdates skipped(10);
  skipped.add(false, 2.0);
  EXPECT_EQ(skipped.why_not_saved(true), "");
  skipped.add(true, 2.0);
  EXPECT_EQ(skipped.why_not_saved(true), "");
  EXPECT_EQ(skipped.why_not_saved(false),
            "1 of 2 updates were skipped, as the loss or the gradient norm was nan, inf or too large");
  skipped.add(true, INFINITY);
  EXPECT_EQ(skipped.why_not_saved(true),
            "2 of 3 updates were skipped, as the loss or the gradient norm was nan, inf or too large");
  skipped.add(false, 1.0);
  skipped.add(false, -NAN);
  EXPECT_EQ(skipped.why_not_saved(true), "the loss is nan");
}

}  // namespace
}  // namespace heddle
